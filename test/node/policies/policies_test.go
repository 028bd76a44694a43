// Package policies has a test of policies that depend on what a real kubelet does and reports.
package policies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/node"
	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

func TestMain(m *testing.M) { theater.Main(m) }

// patience bounds the test: much longer than it takes on a slow machine.
const patience = 30 * time.Minute

const (
	name   = "node-1"
	device = "example.com/resource" // of the device plugin
)

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
- path: /devices
  policies:
  - type: Devices
    config: {resource: ` + device + `, units: Numbered}
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
	n, err := node.Start(ctx, th.ControlPlane, th.Root, controlplane.NodeSpec{Name: name}.Node())
	if err != nil {
		t.Fatal(err)
	}
	kubelet := slices.IndexFunc(n.Processes(), func(p *controlplane.Process) bool { return p.Name() == "kubelet" })
	p := play{Theater: th, outboard: th.Outboard(config), kubelet: n.Processes()[kubelet]}
	p.images()
	p.resize()
	p.devices()
}

// node returns the node as it is.
func (p play) node() *corev1.Node {
	p.T.Helper()
	n, err := p.Client.CoreV1().Nodes().Get(p.Ctx, name, metav1.GetOptions{})
	if err != nil {
		p.T.Fatal(err)
	}
	return n
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

// now returns what the profile of all pods says about the pending pod.
func (p play) now(pod string) explain.Profile {
	p.T.Helper()
	profiles := p.ExplainPending(p.outboard, pod).Now
	return profiles[slices.IndexFunc(profiles, func(profile explain.Profile) bool { return profile.Profile == "/" })]
}

// images expects that ImageLocality knows the images of containerd as the kubelet reports them, also those that come later. It ends with a
// kube-scheduler, which would not ask for the scores of one node.
func (p play) images() {
	const later = "later:1"
	scores := func(pod string) int64 { return p.now(pod).Explanations[0].Policies[0].Score }
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
	p.Scheduler(strings.ReplaceAll(theater.SchedulerConfig(
		theater.Extender{Outboard: p.outboard, Verbs: "filter prioritize"},
		theater.Extender{Outboard: p.outboard, Path: "/devices", Verbs: "filter bind", Managed: []string{device}},
	), "ignoredByScheduler: true", "ignoredByScheduler: false"))
	p.running(present)
	p.running(missing)
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
	if now := p.now(second.Name); now.Fit != 0 {
		p.T.Errorf("the second pod fits, although the first still has its CPU: %+v", now)
	}
	if err := p.kubelet.Continue(); err != nil {
		p.T.Fatal(err)
	}
	p.running(second)

	p.request(resized, p.node().Status.Allocatable.Cpu().String())
	if _, err := controlplane.WaitForPod(p.Ctx, p.Client, resized, func(p *corev1.Pod) (bool, error) { return resource.IsPodResizeDeferred(p), nil }); err != nil {
		p.T.Fatal(err)
	}
	p.NextView(p.outboard)
	third := p.create(controlplane.PodSpec{Name: "third", CPU: "300m"})
	if now := p.now(third.Name); now.Fit != 0 {
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

// devices expects of Devices that as many devices are allocated as the kubelet gives to containers, no more and no fewer, until the kubelet
// gives a container another device than Outboard allocated: it chooses by chance.
func (p play) devices() {
	names := []string{"Dev-1", "Dev-2"} // as the plugin names them; it gives a container a file
	defer func() { _ = errors.Join(os.Remove("/tmp/"+names[0]), os.Remove("/tmp/"+names[1])) }()
	if _, err := p.StartProcess(controlplane.Command{Name: "device-plugin", Path: filepath.Join(p.Root, "kubernetes", "bin", "sample-device-plugin")}); err != nil {
		p.T.Fatal(err)
	}
	p.Eventually("the kubelet has reported the devices", func() bool {
		amount := p.node().Status.Allocatable[device]
		return int(amount.Value()) == len(names)
	})
	for round, other := 0, false; !other; round++ {
		given := map[string]string{} // by the unit that Outboard allocated
		for i := range names {
			pod := p.running(p.create(controlplane.PodSpec{Name: fmt.Sprintf("device-%d-%d", round, i), Resources: map[string]string{device: "1"}}))
			out, err := p.Kubectl(p.Ctx, "exec", pod.Name, "--", "ls", "/tmp").CombinedOutput()
			if err != nil {
				p.T.Fatalf("%v: %s", err, out)
			}
			given[pod.Annotations["outboard.dev/example.com.resource"]] = strings.TrimSpace(string(out))
		}
		p.T.Logf("the devices by unit: %v", given)
		other = given["0"] == names[1] && given["1"] == names[0]
		if !other && (given["0"] != names[0] || given["1"] != names[1]) {
			p.T.Fatalf("want each device once, of the units 0 and 1")
		}
		if out, err := p.Kubectl(p.Ctx, "delete", "pods", "--all", "--wait").CombinedOutput(); err != nil {
			p.T.Fatalf("%v: %s", err, out)
		}
	}
}
