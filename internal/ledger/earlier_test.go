package ledger_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policy"
)

// The files in testdata/earlier are ledgers that earlier builds wrote, as the API server returned
// them; their names are the date and commit of the build. This build finds them under their names,
// counts the same allocations, and adds one without a change of the others. A change of format that
// fails this test also breaks an upgrade.
func TestLedgersOfEarlierBuilds(t *testing.T) {
	files, err := filepath.Glob("testdata/earlier/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no ledgers", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list ledger.ObjectList
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatal(file, err)
		}
		allocations := 0
		for i := range list.Items {
			o := &list.Items[i]
			w := newWorld(t, 1)
			allocations += len(o.Spec.Pods)
			key, before := o.Spec.Key(), o.DeepCopyObject().(*ledger.Object).Spec
			if o.Name != ledger.Name(key) {
				t.Errorf("%s: the ledger of %v has the name %s, and this build reads %s", file, key, o.Name, ledger.Name(key))
				continue
			}
			w.server.ledgers[o.Name] = o
			for _, p := range o.Spec.Pods { // they run, so their allocations stay
				w.server.addPod(p.UID)
				w.server.pods[p.UID].Spec.NodeName = p.Node
			}
			w.replicas[0].cache.look()
			used, capacity, units := int64(0), int64(0), []policy.Capacity{}
			for _, u := range o.Spec.Units {
				used, capacity = used+u.Used(), capacity+u.Capacity
				units = append(units, policy.Capacity{Unit: u.Name, Capacity: u.Capacity})
			}
			if s := o.Summary; s.Used != used || s.Capacity != capacity || used == 0 {
				t.Errorf("%s: %s: allocations of %d of %d, and its summary is %+v", file, o.Name, used, capacity, s)
			}
			if _, err := w.replicas[0].keeper.Allocate(t.Context(), key, w.server.addPod("new"), key.Node, choose(units, 1)); err != nil {
				t.Errorf("%s: %s: %v", file, o.Name, err)
				continue
			}
			after := w.server.ledgers[o.Name].Spec
			if without := *after.Without(func(uid types.UID) bool { return uid == "new" }); !sameJSON(t, without.Units, before.Units) || !sameJSON(t, without.Pods, before.Pods) {
				t.Errorf("%s: %s: before %+v, with a further allocation %+v", file, o.Name, before, after)
			}
		}
		if allocations == 0 {
			t.Errorf("%s has no allocations", file)
		}
	}
}

// sameJSON reports whether both are the same in the API server: an empty list is the same as none.
func sameJSON(t *testing.T, a, b any) bool {
	t.Helper()
	var decoded [2]any
	for i, v := range [...]any{a, b} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &decoded[i]); err != nil {
			t.Fatal(err)
		}
	}
	return reflect.DeepEqual(decoded[0], decoded[1])
}
