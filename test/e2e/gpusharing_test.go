package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

// sharingOutcome is where the pods of both examples are, and on which GPU.
var sharingOutcome = map[string]string{
	"notebook-1": "small 0", "notebook-2": "small 0", "notebook-3": "small 1", "inference": "large 0",
	"whole": "mixed 1", "training": "mixed 0", "too-late": " ",
}

// The example does what its README says.
func TestNodeAgentsExample(t *testing.T) {
	th := theater.Open(t)
	play := th.PlayExample("gpu-sharing")
	example, err := stage.ReadExample(filepath.Join(th.Root, "examples", "gpu-sharing"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range example.Pods {
		placed, err := th.Place(th.Ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		if got := placed.Pod.Spec.NodeName + " " + placed.Pod.Annotations["nvidia.com/container.main.gpus.devices"]; got != sharingOutcome[pod.Name] {
			t.Errorf("%s is on %q, want %q", pod.Name, got, sharingOutcome[pod.Name])
		}
	}
	if err := th.Client.CoreV1().Pods("default").Delete(th.Ctx, "training", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	th.Eventually("the pod that waits gets the memory that is free", func() bool {
		pod, err := th.Client.CoreV1().Pods("default").Get(th.Ctx, "too-late", metav1.GetOptions{})
		return err == nil && pod.Spec.NodeName == "mixed"
	})
	audit, err := exec.CommandContext(th.Ctx, th.Binary(), "gpus", "--audit", "--kubeconfig", th.Kubeconfig(), "--config", play.Outboard.ConfigFile, "--recheck", "0").CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(audit)), "no findings") {
		t.Errorf("outboard gpus --audit: %v\n%s", err, audit)
	}
}

// The example with gpushare does what its README says, and the pages show the real output.
func TestGPUSharingExample(t *testing.T) {
	th := theater.Open(t)
	example, err := stage.ReadExample(filepath.Join(th.Root, "examples", "gpushare"))
	if err != nil {
		t.Fatal(err)
	}
	play, err := th.Play(th.Ctx, example)
	if err != nil {
		t.Fatal(err)
	}
	sharing, allocations := readPage(th, "sharing-gpus"), readPage(th, "allocations")
	for _, pod := range example.Pods {
		placed, err := th.Place(th.Ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		if got := placed.Pod.Spec.NodeName + " " + placed.Pod.Annotations[GPUIndex]; got != sharingOutcome[pod.Name] {
			t.Errorf("%s is on %q, want %q", pod.Name, got, sharingOutcome[pod.Name])
		}
		if placed.Waiting != "" {
			about, _, _ := strings.Cut(placed.Waiting, ". ")
			sharing.shows(t, about)
		}
	}
	outboard := func(args ...string) string {
		out, err := exec.CommandContext(th.Ctx, th.Binary(), append(args, "--admin", play.Outboard.Admin)...).CombinedOutput()
		if err != nil {
			t.Fatalf("outboard %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	sharing.shows(t, outboard("gpus"))
	excerpt(th, "README.md", "$ outboard explain too-late", outboard("explain", "too-late"))
	ledgers, err := th.Kubectl(th.Ctx, "get", "ledgers").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(ledgers)) {
		fields := strings.Fields(line)
		allocations.shows(t, strings.Join(fields[:len(fields)-1], " ")) // without the age
	}
	audit, err := exec.CommandContext(th.Ctx, th.Binary(), "gpus", "--audit", "--kubeconfig", th.Kubeconfig(), "--config", play.Outboard.ConfigFile, "--recheck", "0").CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(audit)), "no findings") {
		t.Errorf("outboard gpus --audit: %v\n%s", err, audit)
	}
	// The page describes the preemption: kube-scheduler counts 30 GiB left on the node, so it finds
	// no pod to evict, and makes no preempt call.
	th.Priority("urgent", 1000)
	urgent := theater.GPUPod("urgent", 30)
	urgent.PriorityClass, urgent.NodeSelector = "urgent", map[string]string{corev1.LabelHostname: "mixed"}
	waits := th.Placed(urgent)
	if want := "preemption: expected at least one victim pod on node"; !strings.Contains(waits.Waiting, want) {
		t.Errorf("bound to %q, waiting: %q, want it to contain %q", waits.Pod.Spec.NodeName, waits.Waiting, want)
	}
}

// page is a page of docs/.
type page struct{ name, text string }

func readPage(th *theater.Theater, name string) page {
	th.T.Helper()
	text, err := os.ReadFile(filepath.Join(th.Root, "docs", name+".md"))
	if err != nil {
		th.T.Fatal(err)
	}
	return page{name, oneSpaced(string(text))}
}

// shows fails the test unless the page contains the text, possibly with other line breaks.
func (p page) shows(t *testing.T, text string) {
	t.Helper()
	if !strings.Contains(p.text, oneSpaced(text)) {
		t.Errorf("docs/%s.md does not contain\n%s", p.name, text)
	}
}

// excerpt fails the test unless the lines after the command in a page are lines of the output, in
// this order, except those that mark omissions.
func excerpt(th *theater.Theater, page, command, output string) {
	th.T.Helper()
	text, err := os.ReadFile(filepath.Join(th.Root, page))
	if err != nil {
		th.T.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "\n"+command+"\n")
	if !found {
		th.T.Fatalf("%s has no %s", page, command)
	}
	block, _, _ := strings.Cut(after, "```")
	rest := "\n" + timestamp.ReplaceAllString(output, "TIME")
	for line := range strings.Lines(timestamp.ReplaceAllString(block, "TIME")) {
		if line == "…\n" {
			continue
		}
		if _, rest, found = strings.Cut(rest, "\n"+strings.TrimSuffix(line, "\n")); !found {
			th.T.Errorf("%s: %q is not in the output, or not in this order:\n%s", page, line, output)
			return
		}
	}
}

var timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// oneSpaced returns the text with single spaces and without times.
func oneSpaced(text string) string {
	return strings.Join(strings.Fields(timestamp.ReplaceAllString(text, "TIME")), " ")
}
