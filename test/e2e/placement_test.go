package e2e

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/test/controlplane"
)

const nginx = "docker.io/library/nginx:latest"

// changeStatus changes the status of a node, concurrently with other writers.
func (th *theater) changeStatus(node string, change func(*corev1.NodeStatus)) {
	th.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		n, err := th.Client.CoreV1().Nodes().Get(th.ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&n.Status)
		_, err = th.Client.CoreV1().Nodes().UpdateStatus(th.ctx, n, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		th.t.Fatal(err)
	}
}

// The pod's event shows a rejection with Outboard's text, counted by node.
func TestRejectReachesTheEvent(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"}, controlplane.NodeSpec{Name: "b"})
	o := th.outboard(oneWeb)
	th.scheduler(schedulerConfig(extender{o: o, verbs: "filter"}))
	// kube-scheduler binds here, and may make the next call before Outboard's view shows the
	// binding.
	one := th.boundAndSeen(o, web("web-1"))
	two := th.boundAndSeen(o, web("web-2"))
	if one.Spec.NodeName == two.Spec.NodeName {
		t.Fatalf("both are on %s", one.Spec.NodeName)
	}
	three := th.place(web("web-3"))
	if three.Waiting == "" {
		t.Fatalf("web-3 is on %s", three.Pod.Spec.NodeName)
	}
	event, err := controlplane.WaitForPodEvent(th.ctx, th.Client, three.Pod, "FailedScheduling")
	if err != nil {
		t.Fatal(err)
	}
	doc := th.explainPending(o, "web-3")
	if len(doc.Decisions) == 0 || len(doc.Decisions[0].Rejections) != 1 {
		t.Fatalf("the explanation is %+v", doc)
	}
	rejection := doc.Decisions[0].Rejections[0]
	if want := "2 " + rejection.Text; !strings.Contains(event.Message, want) {
		t.Errorf("the event is %q, want it to contain %q", event.Message, want)
	}
	if rejection.Policy != "PodLimit" || rejection.Nodes != 2 || len(doc.Now) != 1 || doc.Now[0].Fit != 0 {
		t.Errorf("the explanation is %+v", doc)
	}
	// A pod to which the policy does not apply is placed.
	th.bound(controlplane.PodSpec{Name: "other"})
	// kube-scheduler places a pod in a freed place.
	if err := controlplane.DeletePod(th.ctx, th.Client, one); err != nil {
		t.Fatal(err)
	}
	if again := th.willBeBound(three.Pod); again.Spec.NodeName != one.Spec.NodeName {
		t.Errorf("web-3 is on %s, the free place is on %s", again.Spec.NodeName, one.Spec.NodeName)
	}
}

// Outboard binds pods with both kinds of bodies, over plain HTTP and mutual TLS: the Binding sets
// node and annotation together, and kube-scheduler keeps its connections.
func TestBindThroughUs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, tls string
		nodes     bool
	}{{"names over mTLS", mutualTLS, false}, {"nodes over HTTP", plainHTTP, true}} {
		t.Run(tt.name, func(t *testing.T) {
			th := open(t)
			th.nodes(controlplane.NodeSpec{Name: "a", Images: map[string]int64{nginx: 1 << 27}}, controlplane.NodeSpec{Name: "b"}, controlplane.NodeSpec{Name: "c"})
			o := th.outboard(webLimit + "  - type: ImageLocality\n" + tt.tls)
			th.scheduler(schedulerConfig(extender{o: o, verbs: "filter prioritize bind", nodes: tt.nodes}))
			const pods = 20
			for i := range pods {
				pod := th.bound(controlplane.PodSpec{Name: "p-" + string(rune('a'+i)), Image: "nginx"})
				why := pod.Annotations[decision.Annotation]
				if !strings.HasPrefix(why, "scored ") || !strings.Contains(why, "ImageLocality 100×1") || !strings.Contains(why, "3 of 3 nodes fit") {
					t.Fatalf("%s on %s has the annotation %q", pod.Name, pod.Spec.NodeName, why)
				}
				if pod.Spec.NodeName != "a" {
					t.Errorf("%s is on %s, not where its image is", pod.Name, pod.Spec.NodeName)
				}
			}
			// The metric counts the last call shortly after its pod is bound.
			th.eventually("20 binds are counted", func() bool {
				return th.metric(o, `outboard_request_duration_seconds_count{outcome="success",profile="/",verb="bind"} `) == "20"
			})
			// 60 calls or more. Bind calls overlap with the calls for the next pod, and
			// kube-scheduler keeps two idle connections, so it sometimes opens a third one.
			accepted, err := strconv.Atoi(th.metric(o, `outboard_server_connections_total{outcome="accepted"} `))
			if err != nil || accepted < 1 || accepted > 30 {
				t.Errorf("%d connections for 60 calls (%v)", accepted, err)
			}
		})
	}
}
