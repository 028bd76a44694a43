package nightly

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// A custom kube-scheduler, in a module of its own with at most 20 lines of code, has a custom
// policy.
func TestOwnScheduler(t *testing.T) {
	th := theater.Open(t)
	program := filepath.Join(t.TempDir(), "scheduler")
	build := exec.CommandContext(th.Ctx, "go", "build", "-ldflags=-s -w", "-o", program, ".")
	build.Dir = filepath.Join(th.Root, "examples", "own-scheduler")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	main, err := os.ReadFile(filepath.Join(build.Dir, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(main, []byte("\n")); lines > 20 {
		t.Errorf("main.go has %d lines, and should have 20 at most", lines)
	}
	th.Nodes(controlplane.NodeSpec{Name: "a"})
	th.PluginOf(program, "profiles:\n- policies: [{type: Seats, config: {license: cad, seats: 2}}]\n")
	seat := func(name string) controlplane.PodSpec {
		return controlplane.PodSpec{Name: name, Labels: map[string]string{"example.com/license": "cad"}}
	}
	for _, name := range []string{"first", "second"} {
		if pod := th.Bound(seat(name)); pod.Annotations["example.com/seat"] != "cad" {
			t.Errorf("%s has the annotations %v", name, pod.Annotations)
		}
	}
	third := th.Placed(seat("third"))
	if !strings.Contains(third.Waiting, "all seats of the license are taken") {
		t.Fatalf("the third pod waits because of %q", third.Waiting)
	}
	if err := th.Client.CoreV1().Pods("default").Delete(th.Ctx, "first", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	if pod := th.WillBeBound(third.Pod); pod.Annotations["example.com/seat"] != "cad" {
		t.Errorf("third has the annotations %v", pod.Annotations)
	}
}

// With kube-scheduler's gang scheduling, a gang of 8 is placed as a whole, or not at all: each
// member counts the GPUs of the members before it, although none of them is bound, and the plugin
// releases the reservations of a group that does not fit.
func TestPluginPlacesGangs(t *testing.T) {
	const gate = "--feature-gates=GenericWorkload=true"
	th := theater.OpenWith(t, controlplane.Options{APIServerArgs: []string{gate, "--runtime-config=scheduling.k8s.io/v1beta1=true"}})
	th.Nodes(theater.GPUs("one", 4, 10), theater.GPUs("two", 4, 10))
	path, err := theater.Plugged()
	if err != nil {
		t.Fatal(err)
	}
	s := th.PluginOf(path, "profiles:\n- managedResources: [{name: "+string(theater.GPUMem)+"}, {name: aliyun.com/gpu-count}]\n  policies: [{type: GPUMemory}]\n", gate)
	blocker := th.Bound(theater.GPUPod("blocker", 6))
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "gang"}}
	group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 8}
	if _, err := th.Client.SchedulingV1beta1().PodGroups("default").Create(th.Ctx, group, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var members []*corev1.Pod
	for i := range 8 {
		member := theater.GPUPod(fmt.Sprintf("member-%d", i), 6).Pod()
		member.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("gang")}
		created, err := th.Client.CoreV1().Pods("default").Create(th.Ctx, member, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, created)
	}
	th.Eventually("the gang was tried", func() bool { return strings.Contains(s.Log(), "Insufficient GPU Memory in one device") })
	for _, member := range members {
		if pod, err := th.Client.CoreV1().Pods("default").Get(th.Ctx, member.Name, metav1.GetOptions{}); err != nil || pod.Spec.NodeName != "" {
			t.Fatalf("%s is bound although only 7 fit: %v", member.Name, err)
		}
	}
	if err := th.Client.CoreV1().Pods("default").Delete(th.Ctx, blocker.Name, *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	taken := map[string]bool{}
	for _, member := range members {
		pod := th.WillBeBound(member)
		taken[pod.Spec.NodeName+"/"+pod.Annotations["ALIYUN_COM_GPU_MEM_IDX"]] = true
	}
	if len(taken) != 8 {
		t.Errorf("the members have the GPUs %v, want 8", taken)
	}
}
