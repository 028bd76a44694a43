package ledger_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/ledger"
)

// newer is a ledger as a newer build writes it, with fields that this build does not know.
const newer = `{
  "apiVersion": "outboard.dev/v1alpha1", "kind": "Ledger", "hint": 1,
  "metadata": {"name": "NAME", "uid": "ledger-1", "resourceVersion": "1"},
  "summary": {"capacity": 20, "used": 6, "free": 14, "largestFree": 10},
  "spec": {
    "resource": "gpu", "node": "a", "lastAt": "2026-01-01T00:00:02Z", "big": 9007199254740993, "topology": {"links": [["0", "1"]]},
    "units": [
      {"name": "0", "capacity": 10, "health": "Good", "claims": [{"pod": "ends", "amount": 2, "slice": "x"}, {"pod": "stays", "amount": 4, "slice": "y"}]},
      {"name": "1", "capacity": 10, "health": "Bad"}
    ],
    "pods": [
      {"uid": "ends", "namespace": "default", "name": "pod-ends", "node": "a", "at": "2026-01-01T00:00:01Z", "token": "t1", "queue": "q1"},
      {"uid": "stays", "namespace": "default", "name": "pod-stays", "node": "a", "at": "2026-01-01T00:00:02Z", "token": "t2", "queue": "q2",
       "annotations": {"unit": "0"}}
    ]
  }
}`

// object decodes JSON into v.
func object(t testing.TB, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
}

// After a rollback, the former build writes back the fields of the newer one, whatever it changes
// in the ledger.
func TestUnknownFieldsStay(t *testing.T) {
	w := newWorld(t, 1)
	o := new(ledger.Object)
	object(t, []byte(newer), o)
	o.Name = ledger.Name(gpuOnA)
	w.server.ledgers[o.Name] = o
	for _, uid := range []types.UID{"stays", "new"} {
		pod := w.server.addPod(uid)
		if _, err := w.replicas[0].keeper.Claim(t.Context(), gpuOnA, pod, "a", choose(w.capacity[gpuOnA], 4)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range w.server.ledgers[o.Name].Spec.Pods {
		if p.UID == "ends" {
			if err := w.replicas[0].keeper.Release(t.Context(), gpuOnA, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	written, err := json.Marshal(w.server.ledgers[o.Name])
	if err != nil {
		t.Fatal(err)
	}
	type claims []struct{ Pod, Slice string }
	var got struct {
		Hint    int
		Summary struct{ Used, LargestFree int }
		Spec    struct {
			Big      json.Number
			Topology any
			Units    []struct {
				Health string
				Claims claims
			}
			Pods []struct {
				UID, Token, Queue string
				Shared            bool
			}
		}
	}
	object(t, written, &got)
	if got.Hint != 1 || got.Summary.LargestFree != 10 || got.Spec.Big != "9007199254740993" || fmt.Sprint(got.Spec.Topology) != "map[links:[[0 1]]]" {
		t.Errorf("fields are lost: %s", written)
	}
	if u := got.Spec.Units; len(u) != 2 || u[0].Health != "Good" || u[1].Health != "Bad" {
		t.Errorf("fields of units are lost: %s", written)
	}
	var all claims
	for _, u := range got.Spec.Units {
		all = append(all, u.Claims...)
	}
	slices.SortFunc(all, func(a, b struct{ Pod, Slice string }) int { return compare(a.Pod, b.Pod) })
	if want := (claims{{"new", ""}, {"stays", "y"}}); !reflect.DeepEqual(all, want) {
		t.Errorf("the claims are %v, want %v", all, want)
	}
	if p := got.Spec.Pods; len(p) != 2 || p[0].UID != "stays" || p[0].Queue != "q2" || !p[0].Shared || p[0].Token == "t2" || p[1].UID != "new" || p[1].Queue != "" {
		t.Errorf("the pods are %+v: the changed one keeps its field, and the new one has none", p)
	}
	if got.Summary.Used != 8 {
		t.Errorf("%d are claimed, want 8", got.Summary.Used)
	}
}

// A ledger that is read and written unchanged stays the same, whatever fields it has.
func TestUnknownFieldsSurviveARoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var draw func(depth int) any
		draw = func(depth int) any {
			switch kind := rapid.IntRange(0, 4).Draw(t, "kind"); {
			case kind == 0:
				return rapid.String().Draw(t, "text")
			case kind == 1:
				return json.Number(fmt.Sprint(rapid.Int64().Draw(t, "number")))
			case kind == 2 || depth == 0:
				return rapid.Bool().Draw(t, "bool")
			case kind == 3:
				list := []any{}
				for range rapid.IntRange(0, 3).Draw(t, "items") {
					list = append(list, draw(depth-1))
				}
				return list
			}
			return map[string]any{"units": draw(depth - 1), "name": draw(depth - 1)} // the names of known fields elsewhere
		}
		extend := func(o map[string]any) map[string]any {
			for i := range rapid.IntRange(0, 2).Draw(t, "unknown fields") {
				o[fmt.Sprint("unknown", i)] = draw(2)
			}
			return o
		}
		var units, pods []any
		for i := range rapid.IntRange(1, 4).Draw(t, "units") {
			uid := fmt.Sprint("pod-", i)
			units = append(units, extend(map[string]any{"name": fmt.Sprint(i), "capacity": 9, "claims": []any{extend(map[string]any{"pod": uid, "amount": i + 1})}}))
			pods = append(pods, extend(map[string]any{
				"uid": uid, "namespace": "n", "name": uid, "node": "a", "at": "2026-01-01T00:00:00Z", "token": "t", "shared": true,
			}))
		}
		before, err := json.Marshal(extend(map[string]any{
			"apiVersion": "outboard.dev/v1alpha1", "kind": "Ledger", "metadata": map[string]any{"name": "l"},
			"summary": extend(map[string]any{"capacity": 1, "used": 1, "free": 0}),
			"spec":    extend(map[string]any{"resource": "gpu", "node": "a", "lastAt": "2026-01-01T00:00:00Z", "units": units, "pods": pods}),
		}))
		if err != nil {
			t.Fatal(err)
		}
		o := new(ledger.Object)
		if err := json.Unmarshal(before, o); err != nil {
			t.Fatal(err)
		}
		after, err := json.Marshal(o.DeepCopyObject())
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if json.Unmarshal(before, &a) != nil || json.Unmarshal(after, &b) != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("read %s, wrote %s", before, after)
		}
	})
}
