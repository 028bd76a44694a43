package e2e

import (
	"strconv"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// The pod's event shows a rejection with Outboard's text, counted by node.
func TestRejectReachesTheEvent(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "a"}, controlplane.NodeSpec{Name: "b"})
	o := th.Outboard(theater.OneWeb)
	th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter"}))
	// kube-scheduler binds here, and may make the next call before Outboard's view shows the
	// binding.
	one := th.BoundAndSeen(o, web("web-1"))
	two := th.BoundAndSeen(o, web("web-2"))
	if one.Spec.NodeName == two.Spec.NodeName {
		t.Fatalf("both are on %s", one.Spec.NodeName)
	}
	three := th.Placed(web("web-3"))
	if three.Waiting == "" {
		t.Fatalf("web-3 is on %s", three.Pod.Spec.NodeName)
	}
	event, err := controlplane.WaitForPodEvent(th.Ctx, th.Client, three.Pod, "FailedScheduling")
	if err != nil {
		t.Fatal(err)
	}
	doc := th.ExplainPending(o, "web-3")
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
	th.Bound(controlplane.PodSpec{Name: "other"})
	// kube-scheduler places a pod in a freed place.
	if err := controlplane.DeletePod(th.Ctx, th.Client, one); err != nil {
		t.Fatal(err)
	}
	if again := th.WillBeBound(three.Pod); again.Spec.NodeName != one.Spec.NodeName {
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
	}{{"names over mTLS", theater.MutualTLS, false}, {"nodes over HTTP", theater.PlainHTTP, true}} {
		t.Run(tt.name, func(t *testing.T) {
			th := theater.Open(t)
			th.Nodes(controlplane.NodeSpec{Name: "a", Images: map[string]int64{theater.Nginx: 1 << 27}}, controlplane.NodeSpec{Name: "b"}, controlplane.NodeSpec{Name: "c"})
			o := th.Outboard(theater.WebLimit + "  - type: ImageLocality\n" + tt.tls)
			th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter prioritize bind", Nodes: tt.nodes}))
			const pods = 20
			for i := range pods {
				pod := th.Bound(controlplane.PodSpec{Name: "p-" + string(rune('a'+i)), Image: "nginx"})
				why := pod.Annotations[decision.Annotation]
				if !strings.HasPrefix(why, "scored ") || !strings.Contains(why, "ImageLocality 100×1") || !strings.Contains(why, "3 of 3 nodes fit") {
					t.Fatalf("%s on %s has the annotation %q", pod.Name, pod.Spec.NodeName, why)
				}
				if pod.Spec.NodeName != "a" {
					t.Errorf("%s is on %s, not where its image is", pod.Name, pod.Spec.NodeName)
				}
			}
			// The metric counts the last call shortly after its pod is bound.
			th.Eventually("20 binds are counted", func() bool {
				return th.Metric(o, `outboard_request_duration_seconds_count{outcome="success",profile="/",verb="bind"} `) == "20"
			})
			// 60 calls or more. Bind calls overlap with the calls for the next pod, and
			// kube-scheduler keeps two idle connections, so it sometimes opens a third one.
			accepted, err := strconv.Atoi(th.Metric(o, `outboard_server_connections_total{outcome="accepted"} `))
			if err != nil || accepted < 1 || accepted > 30 {
				t.Errorf("%d connections for 60 calls (%v)", accepted, err)
			}
		})
	}
}

func web(name string) controlplane.PodSpec {
	return controlplane.PodSpec{Name: name, Labels: map[string]string{"app": "web"}}
}
