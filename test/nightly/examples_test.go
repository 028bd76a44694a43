package nightly

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

// The example does what its README says, and after a new price list the next pod goes to another
// node.
func TestCheapestNodeExample(t *testing.T) {
	th := theater.Open(t)
	play := th.PlayExample("cheapest-node")
	placeAll(th, play, map[string]string{"batch-1": "general-spot", "batch-2": "general-spot", "payments": "own", "cache": "own", "database": "memory"})
	// With the old list, the next small pod would join the others on the spot node.
	list := strings.Replace(string(play.Example.Data["prices.yaml"]), "spot: 0.17", "spot: 1.7", 1)
	rewrite(th, play.Outboard, "prices.yaml", list, "price-list")
	if next := th.Bound(controlplane.PodSpec{Name: "batch-3", CPU: "2", Memory: "4Gi"}); next.Spec.NodeName != "own" {
		t.Errorf("with an expensive spot node batch-3 is on %s, want own", next.Spec.NodeName)
	}
	gated(th, play.Outboard, controlplane.PodSpec{Name: "gated"})
	notes := th.Notes(play.Outboard, "gated", "general-spot")
	if want := "1.7 (signal price-list at "; !strings.Contains(notes, want) {
		t.Errorf("the explanation is %q, want %q", notes, want)
	}
}

// placeAll places the example's pods one by one. where is the expected node of each; a pod that is
// not in where must wait.
func placeAll(th *theater.Theater, play *stage.Play, where map[string]string) map[string]stage.Outcome {
	th.T.Helper()
	all := map[string]stage.Outcome{}
	for _, pod := range play.Example.Pods {
		placed, err := th.Place(th.Ctx, pod)
		if err != nil {
			th.T.Fatal(err)
		}
		if got := placed.Pod.Spec.NodeName; got != where[pod.Name] {
			th.T.Errorf("%s is on %q, want %q (%s)", pod.Name, got, where[pod.Name], placed.Waiting)
		}
		all[pod.Name] = placed
	}
	return all
}

// rewrite replaces a file that signals read, and returns when each signal has ended a reading that
// began afterwards.
func rewrite(th *theater.Theater, o *stage.Outboard, file, text string, signals ...string) {
	th.T.Helper()
	for _, end := range []string{"", "\n"} { // the first reading may have begun earlier
		before := map[string]string{}
		readings := func(signal string) string {
			return th.Metric(o, `outboard_signal_readings_total{outcome="success",signal="`+signal+`"} `)
		}
		for _, signal := range signals {
			before[signal] = readings(signal)
		}
		if err := th.WriteFile(file, []byte(text+end)); err != nil {
			th.T.Fatal(err)
		}
		for _, signal := range signals {
			th.Eventually("signal "+signal+" is read", func() bool { return readings(signal) != before[signal] })
		}
	}
}

// gated creates a pod that kube-scheduler does not try, and for which explain evaluates the
// policies on the current nodes.
func gated(th *theater.Theater, o *stage.Outboard, spec controlplane.PodSpec) {
	th.T.Helper()
	pod := spec.Pod()
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
	if _, err := th.Client.CoreV1().Pods(pod.Namespace).Create(th.Ctx, pod, metav1.CreateOptions{}); err != nil {
		th.T.Fatal(err)
	}
	th.Eventually("Outboard has seen "+spec.Name, func() bool { return th.Explain(o, spec.Name).Reason != nil })
}

// The example does what its README says, and explain shows which pods hold what.
func TestDevicesExample(t *testing.T) {
	th := theater.Open(t)
	play := th.PlayExample("devices")
	waiting := map[string]string{
		"pair-3":     "1 node(s) have fewer devices in total than the pod requests, 1 node(s) have none of the devices that the pod requests",
		"signer-too": "Insufficient example.com/dongle",
	}
	placed := map[string]string{}
	for _, pod := range play.Example.Pods {
		p, err := th.Place(th.Ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		if want := waiting[pod.Name]; want == "" && p.Waiting != "" || !strings.Contains(p.Waiting, want) {
			t.Errorf("%s waits because of %q, want %q", pod.Name, p.Waiting, want)
		}
		placed[pod.Name] = p.Pod.Spec.NodeName + " " + p.Pod.Annotations["outboard.dev/example.com.fpga"]
	}
	want := map[string]string{
		"one": "lab-2 fpga0", "pair-1": "lab-1 fpga0,fpga1", "pair-2": "lab-1 fpga2,fpga3", "pair-3": " ", "signer": "desk ", "signer-too": " ",
	}
	if !maps.Equal(placed, want) {
		t.Errorf("the pods got %q, want %q", placed, want)
	}
	th.Audited()
	readme, err := os.ReadFile(filepath.Join(th.Root, "examples", "devices", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range th.ExplainPending(play.Outboard, "pair-3").Now[0].Explanations {
		for _, p := range x.Policies {
			if line := x.Node + ": " + strings.Join(p.Notes, " "); len(p.Notes) > 0 && !strings.Contains(string(readme), "\n"+line+"\n") {
				t.Errorf("the README does not contain\n%s", line)
			}
		}
	}
}

// The example does what its README says, and a healed node gets pods again.
func TestDegradedHardwareExample(t *testing.T) {
	th := theater.Open(t)
	play := th.PlayExample("degraded-hardware")
	waits := placeAll(th, play, map[string]string{"train": "gpu-3", "burn-in": "gpu-1", "web": "cpu-3"})["train-large"]
	for _, want := range []string{
		"1 node(s) have a condition that indicates degraded hardware", "1 node(s) have a signal that indicates degraded hardware",
	} {
		if !strings.Contains(waits.Waiting, want) {
			t.Errorf("train-large waits because of %q, want %q", waits.Waiting, want)
		}
	}
	// A pod for which kube-scheduler does not exclude the nodes without GPUs.
	gated(th, play.Outboard, controlplane.PodSpec{Name: "gated"})
	for _, test := range []struct{ pod, node, want string }{
		{"train-large", "gpu-1", "rule xid: rejects (condition XidCriticalError is True, Xid79)"},
		{"train-large", "gpu-2", "rule hot: rejects (signal gpu-temperature was 91, above 85, at "},
		{"gated", "cpu-1", "rule deadlock: rejects (condition KernelDeadlock is True, DockerHung)"},
		{"gated", "cpu-2", `rule suspect: subtracts 50 points (label example.com/suspect is "")`},
	} {
		if notes := th.Notes(play.Outboard, test.pod, test.node); !strings.Contains(notes, test.want) {
			t.Errorf("the explanation of %s on %s is %q, want %q", test.pod, test.node, notes, test.want)
		}
	}
	condition(th, "gpu-1", "XidCriticalError", corev1.ConditionFalse)
	if healed := th.AwaitBound(waits.Pod); healed.Spec.NodeName != "gpu-1" {
		t.Errorf("%s is on %s, and gpu-1 is healed", healed.Name, healed.Spec.NodeName)
	}
}

// condition sets a condition of the node, as node-problem-detector does.
func condition(th *theater.Theater, node, kind string, status corev1.ConditionStatus) {
	th.T.Helper()
	changeStatus(th, node, func(s *corev1.NodeStatus) {
		for i := range s.Conditions {
			if string(s.Conditions[i].Type) == kind {
				s.Conditions[i].Status, s.Conditions[i].LastTransitionTime = status, metav1.Now()
			}
		}
	})
}

// changeStatus changes the status of a node, concurrently with other writers.
func changeStatus(th *theater.Theater, node string, change func(*corev1.NodeStatus)) {
	th.T.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		n, err := th.Client.CoreV1().Nodes().Get(th.Ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&n.Status)
		_, err = th.Client.CoreV1().Nodes().UpdateStatus(th.Ctx, n, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		th.T.Fatal(err)
	}
}

// The example does what its README says. The reason of a pending pod shows who has the seats, and
// the pod runs when somebody outside the cluster returns one.
func TestLicensesExample(t *testing.T) {
	th := theater.Open(t)
	play := th.PlayExample("licenses")
	waiting := map[string]string{
		"sim-3": "2 not enough free seats of a floating license",
		"cad-2": "1 node(s) do not have a license that the pod requests, 1 node(s) do not have enough free seats of a node-locked license",
		"typo":  `annotation outboard.dev/licenses: there is no license "mathlab"`,
	}
	pods := map[string]*corev1.Pod{}
	for _, pod := range play.Example.Pods {
		placed, err := th.Place(th.Ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		pods[pod.Name] = placed.Pod
		if want := waiting[pod.Name]; want == "" && placed.Waiting != "" || !strings.Contains(placed.Waiting, want) {
			t.Errorf("%s is on %q, waiting: %q, want %q", pod.Name, placed.Pod.Spec.NodeName, placed.Waiting, want)
		}
	}
	if got := pods["cad-1"].Spec.NodeName; got != "cad" {
		t.Errorf("cad-1 is on %q", got)
	}
	th.Audited()
	said := ""
	for _, n := range th.ExplainPending(play.Outboard, "sim-3").Now[0].Notes {
		said += strings.Join(n.Notes, "\n")
	}
	for _, want := range []string{"matlab: requests 1 seat of 6; 3 used by others as of ", "; 1 reserved; 2 allocated by pods: default/sim-1, default/sim-2"} {
		if !strings.Contains(said, want) {
			t.Errorf("the explanation of sim-3 is %q, want %q", said, want)
		}
	}
	// People return two.
	rewrite(th, play.Outboard, "seats.yaml", "MATLAB/total: 6\nMATLAB/used: 1\n", "flexnet")
	th.AwaitBound(pods["sim-3"])
	th.Finish(pods["cad-1"])
	if bound := th.AwaitBound(pods["cad-2"]); bound.Spec.NodeName != "cad" {
		t.Errorf("cad-2 is on %q", bound.Spec.NodeName)
	}
	th.Audited()
}

// The example does what its README says; a rule with a signal passes pods as soon as the signal
// permits.
func TestOwnRulesExample(t *testing.T) {
	th := theater.Open(t)
	play := th.PlayExample("own-rules")
	placed := placeAll(th, play, map[string]string{"red": "red", "web": "old", "with-sidecar": "shared"})
	for pod, want := range map[string]string{"batch": "3 batch pods run outside office hours", "burn-in": "1 node(s) are too hot"} {
		if got := placed[pod].Waiting; !strings.Contains(got, want) {
			t.Errorf("%s waits because of %q, want %q", pod, got, want)
		}
	}
	for pod, want := range map[string]string{
		"burn-in": "rule not-too-hot: false (signals.temperature is 91)",
		"batch":   `rule outside-office-hours: false`,
	} {
		if notes := th.Notes(play.Outboard, pod, "hot"); !strings.Contains(notes, want) {
			t.Errorf("the explanation of %s on hot is %q, want %q", pod, notes, want)
		}
	}
	rewrite(th, play.Outboard, "office-hours.yaml", "now: 0\n", "office-hours")
	if batch := th.AwaitBound(placed["batch"].Pod); batch.Spec.NodeName != "old" {
		t.Errorf("batch is on %s, want old", batch.Spec.NodeName)
	}
	rewrite(th, play.Outboard, "temperatures.yaml", strings.Replace(string(play.Example.Data["temperatures.yaml"]), "91", "50", 1), "temperature")
	if burnIn := th.AwaitBound(placed["burn-in"].Pod); burnIn.Spec.NodeName != "hot" {
		t.Errorf("burn-in is on %s, want hot", burnIn.Spec.NodeName)
	}
}

// The example does what its README says: each of the five policies contributes to the single call
// of kube-scheduler.
func TestSeveralPoliciesExample(t *testing.T) {
	th := theater.Open(t)
	play := th.PlayExample("several-policies")
	last := placeAll(th, play, map[string]string{"report": "own-2", "simulation-1": "own-2", "simulation-2": "rented-1"})["simulation-3"]
	// The pod's event has the reason of each policy that filters.
	for _, want := range []string{"1 node(s) have a condition that indicates degraded hardware", "2 not enough free seats of a floating license"} {
		if !strings.Contains(last.Waiting, want) {
			t.Errorf("the event is %q, want %q", last.Waiting, want)
		}
	}
	doc := th.ExplainPending(play.Outboard, "simulation-3")
	if len(doc.Decisions) == 0 || len(doc.Now) != 1 {
		t.Fatalf("the explanation is %+v", doc)
	}
	text := &strings.Builder{}
	if err := doc.Text(text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Licenses: solver: requests 1 seat of 2; 2 allocated by pods: default/simulation-1, default/simulation-2",
		"HardwareHealth: rule memory-errors: rejects (condition MemoryErrors is True",
		"Utilization: CPU: 95% used of 16", "Cost: cost of the node: 0.3 (annotation example.com/usd-per-hour)",
		"Signals:",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the explanation does not contain %q:\n%s", want, text)
		}
	}
}

// The example does what its README says, and a new measurement makes the pending pod fit.
func TestRealUseExample(t *testing.T) {
	th := theater.Open(t)
	play := th.PlayExample("real-use")
	waits := placeAll(th, play, map[string]string{"web-1": "small", "web-2": "calm", "web-3": "calm", "web-4": "small", "web-5": "calm"})["render"]
	for _, want := range []string{"3 node(s) would exceed their maximum CPU utilization", "1 node(s) would exceed their maximum memory utilization"} {
		if !strings.Contains(waits.Waiting, want) {
			t.Errorf("render waits because of %q, want %q", waits.Waiting, want)
		}
	}
	notes := th.Notes(play.Outboard, "render", "calm")
	for _, want := range []string{"CPU: 22% used of 16 at ", " + 28.13% by 3 pods bound since ", " + 62.5% by this pod = 112.6%"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the explanation is %q, want %q", notes, want)
		}
	}
	use := strings.Replace(string(play.Example.Data["use.yaml"]), "memory: 80", "memory: 20", 1)
	rewrite(th, play.Outboard, "use.yaml", use, "memory")
	if bound := th.AwaitBound(waits.Pod); bound.Spec.NodeName != "leaky" {
		t.Errorf("when leaky has memory again, render is on %s", bound.Spec.NodeName)
	}
}
