package e2e

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"outboard.dev/outboard/controlplane"
	"outboard.dev/outboard/decision"
)

const nginx = "docker.io/library/nginx:latest"

// The tutorial's own scenario, at the tutorial's own URL: nothing is served there
// but prioritize, and the second nginx pod goes where the first one's image is.
func TestImageScoreAtTheTutorialsURL(t *testing.T) {
	for _, mode := range []string{"names", "nodes"} {
		t.Run(mode, func(t *testing.T) {
			th := open(t)
			th.nodes(controlplane.NodeSpec{Name: "a"}, controlplane.NodeSpec{Name: "b"}, controlplane.NodeSpec{Name: "c"}, controlplane.NodeSpec{Name: "d"})
			o := th.outboard(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
profiles:
- path: /my_scheduler_extension/my_new_priorities/image_score
  verb: prioritize
  policies:
  - type: ImageLocality
`)
			th.scheduler(schedulerConfig(extender{o: o, path: "/my_scheduler_extension/my_new_priorities", verbs: "prioritize=image_score", nodes: mode == "nodes"}))
			first := th.boundAndSeen(o, controlplane.PodSpec{Name: "first", Image: "nginx", CPU: "1"})
			before := th.metric(o, "outboard_cluster_view_generation ")
			th.pull(first.Spec.NodeName, nginx)
			th.eventually("Outboard has seen the image", func() bool { return th.metric(o, "outboard_cluster_view_generation ") != before })
			// Without us the second would go to an emptier node.
			second := th.bound(controlplane.PodSpec{Name: "second", Image: "nginx:latest", CPU: "1"})
			if second.Spec.NodeName != first.Spec.NodeName {
				t.Errorf("second is on %s, the image on %s", second.Spec.NodeName, first.Spec.NodeName)
			}
			doc := th.explain(o, "second")
			if len(doc.Decisions) == 0 || doc.Decisions[0].Verb != "prioritize" || doc.Decisions[0].Top[0].Node != second.Spec.NodeName || doc.Decisions[0].Top[0].Total != 100 {
				t.Errorf("explained as %+v", doc.Decisions)
			}
		})
	}
}

// pull puts an image on the node, as a kubelet would.
func (th *theater) pull(node, image string) {
	th.t.Helper()
	th.changeStatus(node, func(s *corev1.NodeStatus) {
		s.Images = append(s.Images, corev1.ContainerImage{Names: []string{image}, SizeBytes: 190 << 20})
	})
}

// changeStatus changes the status of a node, beside others who may do so.
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

// A reject is told in the pod's own event, with our text, counted by node.
func TestRejectReachesTheEvent(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"}, controlplane.NodeSpec{Name: "b"})
	o := th.outboard(oneWeb)
	th.scheduler(schedulerConfig(extender{o: o, verbs: "filter"}))
	// Others than us bind here, and kube-scheduler may hear of it, and ask, before we do.
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
	doc := th.explain(o, "web-3")
	if len(doc.Decisions) == 0 || len(doc.Decisions[0].Rejections) != 1 {
		t.Fatalf("explained as %+v", doc)
	}
	rejection := doc.Decisions[0].Rejections[0]
	if want := "2 " + rejection.Text; !strings.Contains(event.Message, want) {
		t.Errorf("the event says %q, want it to say %q", event.Message, want)
	}
	if rejection.Policy != "PodLimit" || rejection.Nodes != 2 || len(doc.Now) != 1 || doc.Now[0].Fit != 0 {
		t.Errorf("explained as %+v", doc)
	}
	// A pod that is none of the policy's business is not held up.
	th.bound(controlplane.PodSpec{Name: "other"})
	// A freed place is seen.
	if err := controlplane.DeletePod(th.ctx, th.Client, one); err != nil {
		t.Fatal(err)
	}
	if again := th.willBeBound(three.Pod); again.Spec.NodeName != one.Spec.NodeName {
		t.Errorf("web-3 is on %s, the free place is on %s", again.Spec.NodeName, one.Spec.NodeName)
	}
}

// Bound through us, in both modes, over plain HTTP and mutual TLS: node and
// annotation arrive together, and kube-scheduler keeps its connections.
func TestBindThroughUs(t *testing.T) {
	for _, tt := range []struct {
		name, tls string
		nodes     bool
	}{{"names over mTLS", mutualTLS, false}, {"nodes over HTTP", "", true}} {
		t.Run(tt.name, func(t *testing.T) {
			th := open(t)
			th.nodes(controlplane.NodeSpec{Name: "a", Images: map[string]int64{nginx: 1 << 27}}, controlplane.NodeSpec{Name: "b"}, controlplane.NodeSpec{Name: "c"})
			o := th.outboard(oneWeb + "  - type: ImageLocality\n" + tt.tls)
			th.scheduler(schedulerConfig(extender{o: o, verbs: "filter prioritize bind", nodes: tt.nodes}))
			const pods = 20
			for i := range pods {
				pod := th.bound(controlplane.PodSpec{Name: "p-" + string(rune('a'+i)), Image: "nginx"})
				why := pod.Annotations[decision.Annotation]
				if !strings.HasPrefix(why, "scored ") || !strings.Contains(why, "ImageLocality 100×1") || !strings.Contains(why, "3 of 3 nodes fit") {
					t.Fatalf("%s on %s is annotated %q", pod.Name, pod.Spec.NodeName, why)
				}
				if pod.Spec.NodeName != "a" {
					t.Errorf("%s is on %s, not where its image is", pod.Name, pod.Spec.NodeName)
				}
			}
			// The last call is counted a moment after its pod is seen bound.
			th.eventually("20 binds are counted", func() bool {
				return th.metric(o, `outboard_request_duration_seconds_count{outcome="success",profile="/",verb="bind"} `) == "20"
			})
			// 60 calls or more. Binds run beside the next pod's calls, and two idle
			// connections are kept, so a third is opened now and then.
			accepted, err := strconv.Atoi(th.metric(o, `outboard_server_connections_total{outcome="accepted"} `))
			if err != nil || accepted < 1 || accepted > 30 {
				t.Errorf("%d connections for 60 calls (%v)", accepted, err)
			}
		})
	}
}

// Only pods that ask for a managed resource are our concern.
func TestManagedResources(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"})
	o := th.outboard(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
profiles:
- managedResources: [{name: example.com/license, ignoredByScheduler: true}]
  policies:
  - type: PodLimit
    config: {max: 1, selector: {}}
`)
	th.scheduler(schedulerConfig(extender{o: o, verbs: "filter", managed: []string{"example.com/license"}}))
	licensed := func(name string) controlplane.PodSpec {
		return controlplane.PodSpec{Name: name, Resources: map[string]string{"example.com/license": "1"}}
	}
	// No node reports the resource, and nobody but us is asked about it.
	th.boundAndSeen(o, licensed("one"))
	th.bound(controlplane.PodSpec{Name: "plain-1"})
	th.bound(controlplane.PodSpec{Name: "plain-2"})
	if got := th.place(licensed("two")); got.Waiting == "" {
		t.Errorf("two is on %s", got.Pod.Spec.NodeName)
	}
	if len(th.explain(o, "plain-1").Decisions) > 0 {
		t.Error("we were asked about a pod without the resource")
	}
}
