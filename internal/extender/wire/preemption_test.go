package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/extender/wire"
)

func TestDecodePreemption(t *testing.T) {
	type victims = map[string]*wire.Victims
	for _, tc := range []struct {
		name, body string
		want       victims
	}{
		{"UIDs", `{` + pod + `,"NodeNameToVictims":null,"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"1"},{"UID":"2"}],"NumPDBViolations":3},"b":{"Pods":null}}}`,
			victims{"a": {UIDs: []string{"1", "2"}, PDBViolations: 3}, "b": {}}},
		{"whole pods", `{"NodeNameToVictims":{"a":{"Pods":[{"metadata":{"uid":"1","name":"x"},"spec":{"containers":[{}]}}]}},` + pod + `}`,
			victims{"a": {UIDs: []string{"1"}}}},
		{"no candidates", `{` + pod + `,"NodeNameToMetaVictims":{}}`, victims{}},
		{"nulls", `{` + pod + `,"NodeNameToMetaVictims":{"a":{"Pods":[null,{},{"UID":null}],"NumPDBViolations":null}}}`,
			victims{"a": {UIDs: []string{"", ""}}}},
		{"letter case and escapes", `{` + strings.ToLower(pod) + `,"nodenametometavictims":{"\u0061":{"pods":[{"uid":"\u0031"}]}}}`, victims{"a": {UIDs: []string{"1"}}}},
		{"a node twice", `{` + pod + `,"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"1"}]},"a":{"Pods":[{"UID":"2"}]}}}`, victims{"a": {UIDs: []string{"2"}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p wire.Preemption
			if err := p.Decode([]byte(tc.body)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, p.Victims); diff != "" {
				t.Error(diff)
			}
			if !json.Valid(p.Pod()) {
				t.Errorf("got pod %s", p.Pod())
			}
		})
	}
}

func TestDecodePreemptionErrors(t *testing.T) {
	long := strings.Repeat("x", 254)
	many := func(n int) string { return `{"UID":"1"}` + strings.Repeat(`,{"UID":"1"}`, n-1) }
	var crowded strings.Builder
	for i := range 40 {
		fmt.Fprintf(&crowded, `"n%d":{"Pods":[%s]},`, i, many(4096))
	}
	for _, tc := range []struct{ name, body, want string }{
		{"nothing", "", `request body is empty`},
		{"no Pod", `{"NodeNameToMetaVictims":{}}`, `request has no Pod`},
		{"no candidates", `{` + pod + `}`, `request has neither NodeNameToMetaVictims nor NodeNameToVictims`},
		{"null candidates", `{` + pod + `,"NodeNameToVictims":null}`, `request has neither NodeNameToMetaVictims nor NodeNameToVictims`},
		{"both forms", `{` + pod + `,"NodeNameToMetaVictims":{"a":null},"NodeNameToVictims":{"b":null}}`, `request has more than one map of victims: the others must be null or absent`},
		{"a UID is a number", `{` + pod + `,"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":7}]}}}`, `NodeNameToMetaVictims["a"].Pods[0]: want a string, have a number at byte 78`},
		{"violations are text", `{` + pod + `,"NodeNameToMetaVictims":{"a":{"NumPDBViolations":"7"}}}`, `NodeNameToMetaVictims["a"].NumPDBViolations: want an integer, have a string at byte 82`},
		{"violations are not whole", `{` + pod + `,"NodeNameToMetaVictims":{"a":{"NumPDBViolations":1.5}}}`, `NodeNameToMetaVictims["a"].NumPDBViolations: want an integer, have a number at byte 82`},
		{"a long node name", `{` + pod + `,"NodeNameToMetaVictims":{"` + long + `":null}}`, `NodeNameToMetaVictims: the name of a node has 254 bytes, the limit is 253`},
		{"a long UID", `{` + pod + `,"NodeNameToVictims":{"a":{"Pods":[{"metadata":{"uid":"` + long + `"}}]}}}`, `NodeNameToVictims["a"].Pods[0]: the UID has 254 bytes, the limit is 128`},
		{"a long pod name", `{"Pod":{"metadata":{"name":"` + long + `"}},"NodeNameToVictims":{}}`, `Pod.metadata.name: the value has 254 bytes, the limit is 253`},
		{"many victims on a node", `{` + pod + `,"NodeNameToMetaVictims":{"a":{"Pods":[` + many(4097) + `]}}}`, `NodeNameToMetaVictims["a"].Pods[4096]: more than 4096 victims on one node`},
		{"many victims", `{` + pod + `,"NodeNameToMetaVictims":{` + strings.TrimSuffix(crowded.String(), ",") + `}}`, `NodeNameToMetaVictims["n36"].Pods[2544]: more than 150000 victims`},
		{"cut", `{` + pod + `,"NodeNameToMetaVictims":{"a"`, `NodeNameToMetaVictims: want ':', but the request ends at byte 61`},
		{"more behind it", `{` + pod + `,"NodeNameToMetaVictims":{}}x`, `1 bytes follow the JSON object of the request, beginning with "x"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := new(wire.Preemption).Decode([]byte(tc.body))
			if err == nil || err.Error() != tc.want {
				t.Errorf("error %v\n want %s", err, tc.want)
			}
		})
	}
}

// Decode reads both forms of kube-scheduler's request with the intended meaning.
func TestPreemptionAgreesWithArguments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ab1-\"\\<é😀 ")), 1, 12, 60)
		whole := rapid.Bool().Draw(t, "whole pods")
		args := extenderv1.ExtenderPreemptionArgs{Pod: &corev1.Pod{}}
		args.Pod.Name = text.Draw(t, "pod")
		if whole {
			args.NodeNameToVictims = map[string]*extenderv1.Victims{}
		} else {
			args.NodeNameToMetaVictims = map[string]*extenderv1.MetaVictims{}
		}
		for _, node := range rapid.SliceOfN(text, 0, 4).Draw(t, "nodes") {
			violations := rapid.Int64().Draw(t, "violations")
			pods, metas := &extenderv1.Victims{NumPDBViolations: violations}, &extenderv1.MetaVictims{NumPDBViolations: violations}
			for _, uid := range rapid.SliceOfN(text, 1, 5).Draw(t, "uids") {
				pods.Pods = append(pods.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID(uid)}})
				metas.Pods = append(metas.Pods, &extenderv1.MetaPod{UID: uid})
			}
			if whole {
				args.NodeNameToVictims[node] = pods
			} else {
				args.NodeNameToMetaVictims[node] = metas
			}
		}
		body := marshal(t, args)
		var p wire.Preemption
		if err := p.Decode(body); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		requireVictims(t, &p, body)
	})
}

// requireVictims compares with what encoding/json decodes.
func requireVictims(t tester, p *wire.Preemption, body []byte) {
	t.Helper()
	var args struct {
		Pod               *identity
		NodeNameToVictims map[string]*struct {
			Pods             []*identity
			NumPDBViolations int64
		}
		NodeNameToMetaVictims map[string]*struct {
			Pods             []*struct{ UID string }
			NumPDBViolations int64
		}
	}
	if err := json.Unmarshal(body, &args); err != nil {
		t.Fatalf("Decode accepts what encoding/json rejects: %v\n%s", err, body)
	}
	want := map[string]*wire.Victims{}
	for node, v := range args.NodeNameToMetaVictims {
		if want[node] = nil; v == nil {
			continue
		}
		want[node] = &wire.Victims{PDBViolations: v.NumPDBViolations}
		for _, pod := range v.Pods {
			if pod != nil {
				want[node].UIDs = append(want[node].UIDs, pod.UID)
			}
		}
	}
	for node, v := range args.NodeNameToVictims {
		if want[node] = nil; v == nil {
			continue
		}
		want[node] = &wire.Victims{PDBViolations: v.NumPDBViolations}
		for _, pod := range v.Pods {
			if pod != nil {
				want[node].UIDs = append(want[node].UIDs, pod.Metadata.UID)
			}
		}
	}
	if got, wanted := marshal(t, p.Victims), marshal(t, want); !bytes.Equal(got, wanted) {
		t.Fatalf("victims %s\nwant %s", got, wanted)
	}
}

// FuzzPreemption checks the comment of Preemption.Decode, for any bytes.
func FuzzPreemption(f *testing.F) {
	for _, body := range []string{
		`{` + pod + `,"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"1"},null],"NumPDBViolations":3},"b":null}}`,
		`{` + pod + `,"NodeNameToVictims":{"a":{"Pods":[{"metadata":{"uid":"1"},"spec":{"containers":[{}]}}]}}}`,
		`{"pod":{},"nodenametovictims":{"\u0061":{"x":[{}],"pods":[]}},"y":1}`,
		"{\"Pod\":{},\"NodeNameToMetaVictims\":{\"\xff\":{}}}",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		var p wire.Preemption
		err := p.Decode(body)
		if !bytes.Equal(before, body) {
			t.Fatalf("Decode changed the body from %q", before)
		}
		if err != nil {
			if text := err.Error(); strings.ContainsAny(text, "\r\n") || !utf8.ValidString(text) {
				t.Fatalf("the error is not one line: %q", text)
			}
			return
		}
		if json.Valid(body) && !repeatsKeys(body) { // else in a part that Decode ignores
			requireVictims(t, &p, body)
		}
	})
}

// No object takes more memory than its weight, whatever its content.
func TestWeightIsABound(t *testing.T) {
	repeat := func(prefix, element, end string) string {
		return prefix + strings.Repeat(element+",", 20_000) + element + end
	}
	keys := func(value string) string {
		var b strings.Builder
		for i := range 20_000 {
			fmt.Fprintf(&b, `"%x":%s,`, i, value)
		}
		return b.String() + `"":` + value
	}
	for name, object := range map[string]string{
		"containers":           repeat(`{"spec":{"containers":[`, `{}`, `]}}`),
		"ephemeral containers": repeat(`{"spec":{"ephemeralContainers":[`, `{}`, `]}}`),
		"volumes":              repeat(`{"spec":{"volumes":[`, `{}`, `]}}`),
		"ephemeral volumes":    repeat(`{"spec":{"volumes":[`, `{"ephemeral":{"volumeClaimTemplate":{}}}`, `]}}`),
		"projected volumes":    repeat(`{"spec":{"volumes":[{"projected":{"sources":[`, `{"secret":{}}`, `]}}]}}`),
		"probes":               repeat(`{"spec":{"containers":[`, `{"livenessProbe":{},"lifecycle":{"preStop":{}},"securityContext":{}}`, `]}}`),
		"container statuses":   repeat(`{"status":{"containerStatuses":[`, `{}`, `]}}`),
		"strings":              repeat(`{"metadata":{"finalizers":[`, `""`, `]}}`),
		"owners":               repeat(`{"metadata":{"ownerReferences":[`, `{}`, `]}}`),
		"terms":                repeat(`{"spec":{"affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[`, `{"podAffinityTerm":{"labelSelector":{}}}`, `]}}}}`),
		"labels":               `{"metadata":{"labels":{` + keys(`""`) + `}}}`,
		"quantities":           `{"spec":{"overhead":{` + keys(`"1"`) + `}}}`,
		"large quantities":     `{"spec":{"overhead":{` + keys(`"1e99"`) + `}}}`,
		"a usual pod":          string(decoded(t, string(namesBody(t, 1))).Pod()),
	} {
		t.Run(name, func(t *testing.T) {
			text := []byte(object)
			var before, after runtime.MemStats
			into := new(corev1.Pod)
			runtime.GC()
			runtime.ReadMemStats(&before)
			if err := json.Unmarshal(text, into); err != nil {
				t.Fatal(err)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			runtime.KeepAlive(into)
			// While a list grows, its old elements are in memory beside at most 1.25 times as many new ones.
			took, weight := int64(after.HeapAlloc-before.HeapAlloc), wire.Weight(text)
			t.Logf("%d bytes of JSON take %d bytes, their weight is %d", len(text), took, weight)
			if took*2 > weight {
				t.Errorf("%d bytes of JSON take %d bytes, and more while they are decoded; their weight is %d", len(text), took, weight)
			}
		})
	}
}
