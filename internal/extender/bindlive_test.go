package extender_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/snapshot"
)

// largePod is a pod of more than the cache keeps as a whole, with these annotations besides. reduced is what the cache has of it.
func largePod(annotations ...string) (whole, reduced *corev1.Pod) {
	whole = somePod(annotations...)
	if whole.Annotations == nil {
		whole.Annotations = map[string]string{}
	}
	whole.Annotations["large"] = strings.Repeat("x", 16<<10)
	reduced = whole.DeepCopy()
	snapshot.ReducePod(reduced)
	return whole, reduced
}

// The cache has only a part of a large pod. Bind reads the pod to place from the API server, and binds or rejects what it finds there.
func TestBindReadsALargePod(t *testing.T) {
	args := encode(t, extenderv1.ExtenderBindingArgs{PodName: "p", PodNamespace: "default", PodUID: "u1", Node: "better"})
	whole, reduced := largePod()
	if !snapshot.IsReduced(reduced) {
		t.Fatal("the cache would keep the whole pod")
	}
	invalid, _ := largePod("error", "x")
	there, elsewhere := whole.DeepCopy(), whole.DeepCopy()
	there.Spec.NodeName, elsewhere.Spec.NodeName = "better", "good"
	gone := errors.New("gone")
	for _, tc := range []struct {
		name  string
		live  *corev1.Pod
		fails error  // of the API server; gone: it has no such pod
		want  string // in the error; "": bound
		binds int
	}{
		{"as it was", whole, nil, "", 1},
		{"with what the cache lacks", invalid, nil, "annotation error: cannot be understood", 0},
		{"gone, or replaced by another of its name", nil, gone, "does not exist", 0},
		{"bound to the node meanwhile", there, nil, "", 0},
		{"bound to another node meanwhile", elsewhere, nil, "already bound", 0},
		{"no response in time", nil, context.DeadlineExceeded, "deadline exceeded", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := 0
			cluster := &fakeCluster{view: view(threeNodes), pods: []*corev1.Pod{reduced}, live: tc.live}
			cluster.onLive = func(context.Context, string) error {
				if asked++; tc.fails == gone {
					cluster.pods = nil
					return nil
				}
				return tc.fails
			}
			got := decode[extenderv1.ExtenderBindingResult](t, serve(t, cluster).post(t, "bind", args)).Error
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) || len(cluster.bindings) != tc.binds {
				t.Errorf("got error %q and %d Bindings, want %q and %d", got, len(cluster.bindings), tc.want, tc.binds)
			}
			if asked == 0 {
				t.Error("bind has not read the pod from the API server")
			}
		})
	}
	t.Run("bound before", func(t *testing.T) {
		bound := reduced.DeepCopy()
		bound.Spec.NodeName = "better"
		cluster := &fakeCluster{view: view(threeNodes), pods: []*corev1.Pod{bound}}
		cluster.onLive = func(context.Context, string) error {
			t.Error("bind asks the API server for what the cache has")
			return nil
		}
		if answer := serve(t, cluster).post(t, "bind", args); answer != `{"Error":""}` {
			t.Errorf("got response %s", answer)
		}
	})
}

// A pod that is being deleted is not bound: no policy is asked, and nothing is allocated.
func TestPodThatIsBeingDeletedIsNotBound(t *testing.T) {
	leaving := terminating(sharing("leaving", 0, 10))
	g := serveGPUProfile(t, nil, leaving)
	g.see([]*corev1.Node{gpuNode("n", 1)}, leaving)
	body := encode(t, extenderv1.ExtenderBindingArgs{PodName: leaving.Name, PodNamespace: leaving.Namespace, PodUID: leaving.UID, Node: "n"})
	answer := decode[extenderv1.ExtenderBindingResult](t, g.post(t, "bind", body))
	if want := "pod default/leaving is being deleted"; answer.Error != want {
		t.Errorf("got error %q, want %q", answer.Error, want)
	}
	record := g.log.Find(decision.Query{Namespace: "default", Name: "leaving", Limit: 1})[0]
	if record.Verb != decision.Bind || len(record.Policies) > 0 {
		t.Errorf("policies were asked: %+v", record)
	}
}
