package extender_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/extender"
)

// Every body that a version of kube-scheduler since Kubernetes 1.4 sends gets the response that the types of that version
// decode: see testdata/shapes/README.md.
func TestShapesOfAllVersions(t *testing.T) {
	nodes := []*corev1.Node{labelled("node-a", "score", "90"), labelled("node-b", "say", "wrong"), labelled("full", "say", "full", "pods", "")}
	victim := onNode("victim", "full", 1)
	files, err := filepath.Glob("testdata/shapes/*.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Errorf("got %d files", len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			pending := somePod()
			pending.Spec.Priority = new(int32(10))
			cluster := &fakeCluster{view: view(nodes, victim), pods: []*corev1.Pod{pending, victim}}
			s := serve(t, cluster)
			_, call, _ := strings.Cut(name, "-") // after the version
			verb, mode, _ := strings.Cut(call, "-")
			answer := s.post(t, verb, string(body))
			switch verb {
			case "filter":
				checkFilterShape(t, mode, answer)
			case "prioritize":
				if diff := gocmp.Diff(extenderv1.HostPriorityList{{Host: "node-a", Score: 9}}, decode[extenderv1.HostPriorityList](t, answer)); diff != "" {
					t.Error(diff)
				}
			case "preempt":
				want := map[string]*extenderv1.MetaVictims{"full": {Pods: []*extenderv1.MetaPod{{UID: "uid-victim"}}}}
				if diff := gocmp.Diff(want, decode[extenderv1.ExtenderPreemptionResult](t, answer).NodeNameToMetaVictims); diff != "" {
					t.Error(diff)
				}
			case "bind":
				if answer != `{"Error":""}` || len(cluster.bindings) != 1 || cluster.bindings[0].Node != "node-a" {
					t.Errorf("got response %s, Bindings %+v", answer, cluster.bindings)
				}
			default:
				t.Errorf("unknown verb %q", verb)
			}
		})
	}
}

func checkFilterShape(t *testing.T, mode, answer string) {
	t.Helper()
	got := decode[extenderv1.ExtenderFilterResult](t, answer)
	if got.FailedAndUnresolvableNodes["node-b"] == "" || got.Error != "" || (got.Nodes == nil) == (got.NodeNames == nil) {
		t.Fatalf("got response %s", answer)
	}
	switch mode {
	case "names":
		if !slices.Equal(*got.NodeNames, []string{"node-a"}) {
			t.Errorf("got response %s", answer)
		}
	case "nodes":
		if len(got.Nodes.Items) != 1 || got.Nodes.Items[0].Name != "node-a" || got.Nodes.Items[0].Status.NodeInfo.KubeletVersion == "" {
			t.Errorf("got response %s", answer)
		}
	default:
		t.Errorf("unknown mode %q", mode)
	}
}

// What policies prepared for the pod of one request is not used for that of another one, although both callers name the same UID and
// resourceVersion.
func TestPodsWithOneVersion(t *testing.T) {
	for name, tt := range map[string]struct {
		cluster extender.Cluster
		nodes   string
	}{
		"a pod that the cluster does not show yet": {&fakeCluster{view: view(threeNodes)}, `"NodeNames":["good"]`},
		"without a cluster":                        {nil, `"Nodes":{"items":[{"metadata":{"name":"good"}}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, tt.cluster)
			filter := func(annotations string) string {
				return failure(t, s.post(t, "filter",
					`{"Pod":{"metadata":{"namespace":"n","name":"p","uid":"u1","resourceVersion":"7"`+annotations+`}},`+tt.nodes+`}`))
			}
			if got := filter(""); got != "" {
				t.Fatal(got)
			}
			if got := filter(`,"annotations":{"error":""}`); got == "" {
				t.Error("the annotation of the second pod has no effect")
			}
		})
	}
}
