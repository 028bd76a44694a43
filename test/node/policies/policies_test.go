// Package policies has a test of policies that depend on what a real kubelet does and reports.
package policies

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/node"
	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

func TestMain(m *testing.M) { theater.Main(m) }

// patience bounds the test: much longer than it takes on a slow machine.
const patience = 30 * time.Minute

const config = theater.OutboardHeader + `serving: {insecure: true}
profiles:
- policies:
  - {type: ImageLocality, weight: 1}
  - type: Rules
    config:
      filters:
      - name: cpu
        message: node(s) would have more than one CPU requested
        expression: usage.requested["cpu"].add(podRequests["cpu"]).compareTo(quantity("1")) <= 0
`

// play is a running Outboard, and a cluster of one node.
type play struct {
	*theater.Theater
	outboard *stage.Outboard
	kubelet  *controlplane.Process
}

func TestPolicies(t *testing.T) {
	th := theater.OpenWith(t, node.ControlPlane())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	th.Ctx = ctx
	spec := controlplane.NodeSpec{Name: "node-1"}
	n, err := node.Start(ctx, th.ControlPlane, th.Root, spec.Node())
	if err != nil {
		t.Fatal(err)
	}
	p := play{outboard: th.Outboard(config)}
	for _, process := range n.Processes() {
		if process.Name() == "kubelet" {
			p.kubelet = process
		}
	}
	for _, test := range []struct {
		name string
		run  func(p play)
	}{{"ImageLocality", play.images}, {"Resize", play.resize}} {
		t.Run(test.name, func(t *testing.T) {
			p := p
			p.Theater = th.ForTest(t)
			test.run(p)
		})
	}
}

// running returns the pod when it runs.
func (p play) running(pod *corev1.Pod) *corev1.Pod {
	p.T.Helper()
	pod, err := controlplane.WaitForPod(p.Ctx, p.Client, pod, func(p *corev1.Pod) (bool, error) { return p.Status.Phase == corev1.PodRunning, nil })
	if err != nil {
		p.T.Fatal(err)
	}
	return pod
}

// create creates a pod that would run.
func (p play) create(spec controlplane.PodSpec) *corev1.Pod {
	p.T.Helper()
	pod := node.Running(spec.Pod())
	pod.Spec.Containers[0].Image = cmp.Or(spec.Image, node.Busybox)
	pod, err := p.Client.CoreV1().Pods(pod.Namespace).Create(p.Ctx, pod, metav1.CreateOptions{})
	if err != nil {
		p.T.Fatal(err)
	}
	return pod
}

// images expects that ImageLocality knows the images of containerd as the kubelet reports them, also those that come later. It ends with a
// kube-scheduler, which would not ask for the scores of one node.
func (p play) images() {
	const later = "later:1"
	scores := func(pod string) int64 {
		return p.ExplainPending(p.outboard, pod).Now[0].Explanations[0].Policies[0].Score
	}
	present := p.create(controlplane.PodSpec{Name: "present"})
	missing := p.create(controlplane.PodSpec{Name: "missing", Image: later})
	if has, hasNot := scores(present.Name), scores(missing.Name); has != 100 || hasNot != 0 {
		p.T.Errorf("the scores are %d and %d", has, hasNot)
	}
	ctr := filepath.Join(p.Root, "test", "node", "programs", "bin", "ctr")
	if out, err := exec.CommandContext(p.Ctx, ctr, "--namespace=k8s.io", "images", "tag", node.Busybox, "docker.io/library/"+later).CombinedOutput(); err != nil {
		p.T.Fatalf("ctr: %v: %s", err, out)
	}
	p.Eventually("the kubelet has reported the image", func() bool { return scores("missing") == 100 })
	p.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: p.outboard, Verbs: "filter prioritize bind"}))
	for _, pod := range []*corev1.Pod{present, missing} {
		p.running(pod)
	}
}

// resize expects that a pod counts with the CPU that it has until the kubelet has acted: while the kubelet is paused, the former amount;
// then the new one; and what it requests as long as the kubelet defers that.
func (p play) resize() {
	resized := p.running(p.create(controlplane.PodSpec{Name: "resized", CPU: "800m"}))
	if err := p.kubelet.Pause(); err != nil {
		p.T.Fatal(err)
	}
	p.request(resized, "200m")
	p.NextView(p.outboard)
	second := p.create(controlplane.PodSpec{Name: "second", CPU: "500m"})
	if now := p.ExplainPending(p.outboard, second.Name).Now[0]; now.Fit != 0 {
		p.T.Errorf("the second pod fits, although the first still has its CPU: %+v", now)
	}
	if err := p.kubelet.Continue(); err != nil {
		p.T.Fatal(err)
	}
	p.running(second)

	n, err := p.Client.CoreV1().Nodes().Get(p.Ctx, resized.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		p.T.Fatal(err)
	}
	p.request(resized, n.Status.Allocatable.Cpu().String())
	if _, err := controlplane.WaitForPod(p.Ctx, p.Client, resized, func(p *corev1.Pod) (bool, error) { return resource.IsPodResizeDeferred(p), nil }); err != nil {
		p.T.Fatal(err)
	}
	p.NextView(p.outboard)
	third := p.create(controlplane.PodSpec{Name: "third", CPU: "300m"})
	if now := p.ExplainPending(p.outboard, third.Name).Now[0]; now.Fit != 0 {
		p.T.Errorf("the third pod fits, although the kubelet may give the first more CPU: %+v", now)
	}
	p.request(resized, "200m")
	p.running(third)
}

// request resizes the pod.
func (p play) request(pod *corev1.Pod, cpu string) {
	p.T.Helper()
	patch := fmt.Appendf(nil, `{"spec": {"containers": [{"name": %q, "resources": {"requests": {"cpu": %q}}}]}}`, pod.Spec.Containers[0].Name, cpu)
	if _, err := p.Client.CoreV1().Pods(pod.Namespace).Patch(p.Ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "resize"); err != nil {
		p.T.Fatal(err)
	}
}
