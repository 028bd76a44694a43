package theater

import (
	"encoding/json"
	"os/exec"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/test/controlplane"
)

// Events are the messages of the pod's events.
func (th *Theater) Events(pod *corev1.Pod) string {
	th.T.Helper()
	list, err := th.Client.CoreV1().Events(pod.Namespace).List(th.Ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod.Name})
	if err != nil {
		th.T.Fatal(err)
	}
	var messages []string
	for i := range list.Items {
		messages = append(messages, list.Items[i].Message)
	}
	return strings.Join(messages, "\n")
}

// Nginx is an image.
const Nginx = "docker.io/library/nginx:latest"

// Priority creates a PriorityClass.
func (th *Theater) Priority(name string, value int32) {
	th.T.Helper()
	_, err := th.Client.SchedulingV1().PriorityClasses().Create(th.Ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{})
	if err != nil {
		th.T.Fatal(err)
	}
	probe := controlplane.PodSpec{Name: "probe", PriorityClass: name}.Pod()
	th.Eventually("the API server's admission knows the class", func() bool {
		_, err := th.Client.CoreV1().Pods("default").Create(th.Ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil
	})
}

// LicensesKey is the annotation of pods that need licenses.
const LicensesKey = "outboard.dev/licenses"

// Licensed describes a pod that needs licenses.
func Licensed(name, needs string) controlplane.PodSpec {
	return controlplane.PodSpec{Name: name, Annotations: map[string]string{LicensesKey: needs}}
}

// Finish sets the pod's phase to Succeeded, as its kubelet does.
func (th *Theater) Finish(pod *corev1.Pod) {
	th.T.Helper()
	pod = pod.DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	if _, err := th.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(th.Ctx, pod, metav1.UpdateOptions{}); err != nil {
		th.T.Fatal(err)
	}
}

// Audited fails the test if `outboard gpus --audit` finds anything.
func (th *Theater) Audited() {
	th.T.Helper()
	out, err := exec.CommandContext(th.Ctx, th.Binary(), "gpus", "--audit", "--kubeconfig", th.Kubeconfig()).CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "no findings") {
		th.T.Errorf("outboard gpus --audit: %v\n%s", err, out)
	}
}

// LedgersPath is the path of ledgers in the API server.
const LedgersPath = "/apis/outboard.dev/v1alpha1/ledgers"

// Ledgers returns all Ledgers, by name.
func (th *Theater) Ledgers() map[string]*ledger.Object {
	th.T.Helper()
	data, err := th.Client.Discovery().RESTClient().Get().AbsPath(LedgersPath).DoRaw(th.Ctx)
	if err != nil {
		th.T.Fatal(err)
	}
	var list ledger.ObjectList
	if err := json.Unmarshal(data, &list); err != nil {
		th.T.Fatal(err)
	}
	all := map[string]*ledger.Object{}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all
}
