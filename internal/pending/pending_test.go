package pending_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/pending"
	"outboard.dev/outboard/internal/requeue"
	"outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/snapshot"
)

const gpuMemory = "aliyun.com/gpu-mem"

// Each mistake has its own code, and a text that leads to what to correct.
func TestReasons(t *testing.T) {
	c, err := config.Parse("test", []byte(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- {path: /gpu, schedulerNames: [outboard-scheduler], policies: [{type: GPUMemory}]}
- {path: /all, policies: [{type: PodLimit, config: {max: 1, selector: {matchLabels: {app: web}}}}]}
`), config.Types{Policies: standard.Types()})
	if err != nil {
		t.Fatal(err)
	}
	const ours, call = "outboard-scheduler", `Post "https://127.0.0.1:18443/gpu/filter": `
	fails := func(cause string) string {
		return "kube-scheduler's call of https://127.0.0.1:18443/gpu/filter fails: " + cause + "; outboard check --cluster finds what to correct"
	}
	for name, tt := range map[string]struct {
		scheduler, node, reason, message string
		gpu                              bool
		rejected                         string // the profile
		code, text                       string
	}{
		"misspelled":                     {"outbord-scheduler", "", "", "", true, "", pending.NotTried, "no scheduler named outbord-scheduler has tried it; did you mean outboard-scheduler?"},
		"misspelled as others are":       {"batch-schedular", "", "", "", false, "", pending.NotTried, "no scheduler named batch-schedular has tried it; did you mean batch-scheduler?"},
		"no scheduler runs":              {ours, "", "", "", true, "", pending.NotTried, "no scheduler named outboard-scheduler has tried it; is it running (docs/troubleshooting.md, The second kube-scheduler)?"},
		"forgotten":                      {"default-scheduler", "", corev1.PodReasonUnschedulable, "0/1 nodes are available", true, "", pending.OtherScheduler, "its schedulerName is default-scheduler; Outboard serves outboard-scheduler"},
		"bound past Outboard":            {"default-scheduler", "n", "", "", true, "", pending.Unallocated, "bound by default-scheduler without an allocation of aliyun.com/gpu-mem; Outboard serves outboard-scheduler"},
		"not called to bind":             {ours, "n", "", "", true, "", pending.Unallocated, "bound by outboard-scheduler without an allocation of aliyun.com/gpu-mem; outboard check --cluster finds why Outboard was not called"},
		"for another node agent":         {ours, "n", "", "", false, "", pending.Unallocated, "bound by outboard-scheduler without an allocation: it requests GPUs by annotations, for nodeAgent: GPUFractioning or ContainerToolkit, and the configuration has nodeAgent: GPUShare"},
		"bound":                          {"default-scheduler", "n", "", "", false, "", "", ""},
		"rejected by kube-scheduler":     {ours, "", corev1.PodReasonUnschedulable, "0/1 nodes are available", true, "", pending.Other, "0/1 nodes are available"},
		"an error of a policy":           {ours, "", corev1.PodReasonUnschedulable, "0/1 nodes are available: 1 policy GPUMemory: annotation x is wrong.", true, "", pending.PolicyFailed, "0/1 nodes are available: 1 policy GPUMemory: annotation x is wrong."},
		"of a policy that it is not for": {ours, "", corev1.PodReasonUnschedulable, "0/1 nodes are available: 1 policy Other: full.", true, "", pending.Other, "0/1 nodes are available: 1 policy Other: full."},
		"rejected by the second":         {ours, "", corev1.PodReasonUnschedulable, "0/1 nodes are available", true, "/all", "PodLimit.LimitReached", "full"},
		"rejected, and not yet said":     {ours, "", "", "", true, "/gpu", "PodLimit.LimitReached", "full"},
		"rejected, and then failed":      {ours, "", corev1.PodReasonSchedulerError, call + "EOF", true, "/gpu", pending.Failed, "kube-scheduler's attempt failed: " + call + "EOF"},
		"wrong port":                     {ours, "", corev1.PodReasonSchedulerError, call + "dial tcp 127.0.0.1:18443: connect: connection refused", true, "", pending.Failed, fails("nothing listens there")},
		"refused client certificate":     {ours, "", corev1.PodReasonSchedulerError, call + "write tcp 127.0.0.1:50212->127.0.0.1:18443: write: broken pipe", true, "", pending.Failed, fails("Outboard closed the connection: it refuses kube-scheduler's client certificate, or was stopped")},
		"refused while it reads":         {ours, "", corev1.PodReasonSchedulerError, call + "write tcp 127.0.0.1:50212->127.0.0.1:18443: write: connection reset by peer", true, "", pending.Failed, fails("Outboard closed the connection: it refuses kube-scheduler's client certificate, or was stopped")},
		"refused before the write":       {ours, "", corev1.PodReasonSchedulerError, call + "use of closed network connection", true, "", pending.Failed, fails("Outboard closed the connection: it refuses kube-scheduler's client certificate, or was stopped")},
		"expired serving certificate":    {ours, "", corev1.PodReasonSchedulerError, call + "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time", true, "", pending.Failed, fails("Outboard's certificate has expired: renew it with outboard setup certs --cluster --renew, or for files --dir DIR --renew")},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}, Spec: corev1.PodSpec{SchedulerName: tt.scheduler, NodeName: tt.node, Containers: []corev1.Container{{}}}}
		if tt.gpu {
			pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gpuMemory: resource.MustParse("2")}
		}
		if name == "for another node agent" {
			pod.Annotations = map[string]string{"outboard.dev/whole-gpus": "1"}
		}
		since := time.Unix(7, 0)
		if tt.reason != "" {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: tt.reason, Message: tt.message, LastTransitionTime: metav1.Unix(5, 0)}}
			since = time.Unix(5, 0) // before this process began
		}
		source := pending.Source{Config: func() *config.Config { return c }, Places: (*config.Profile).Places, Rejected: func(profile string, _ types.UID) (requeue.Status, bool) {
			return requeue.Status{Since: time.Unix(7, 0), LastCall: time.Unix(9, 0), Rejection: decision.Rejection{Policy: "PodLimit", Code: "LimitReached", Text: "full"}}, profile == tt.rejected
		}}
		var b snapshot.Builder
		list := corev1.ResourceList{gpuMemory: resource.MustParse("8"), "aliyun.com/gpu-count": resource.MustParse("1")}
		b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: list, Capacity: list}})
		b.SetPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "other"}, Spec: corev1.PodSpec{NodeName: "n", SchedulerName: "batch-scheduler"}})
		b.SetPod(pod)
		if got, ok := source.Of(b.View(), pod); got.Code != tt.code || got.Text != tt.text || ok != (tt.code != "") || (got.Unserved == "/gpu") != (tt.gpu && tt.node == "" && tt.scheduler != ours) {
			t.Errorf("%s: %s: %s, want %s: %s", name, got.Code, got.Text, tt.code, tt.text)
		} else if tt.rejected != "" && !got.Since.Equal(since) {
			t.Errorf("%s: since %s, want %s", name, got.Since, since)
		}
	}
}

// kube-scheduler calls for the pods of a profile, by the verbs that the profile needs.
func TestUncalled(t *testing.T) {
	const end = "bound by s without a call to Outboard that is recorded; outboard check --cluster finds why"
	for profile, want := range map[string]string{
		"{policies: [{type: ImageLocality}]}":                                                   end + ", unless only one node was left",
		"{policies: [{type: PodLimit, config: {max: 1, selector: {matchLabels: {app: web}}}}]}": end,
		"{schedulerNames: [other], policies: [{type: ImageLocality}]}":                          "",
	} {
		c, err := config.Parse("test", []byte("{apiVersion: outboard.dev/v1alpha1, kind: OutboardConfiguration, serving: {insecure: true}, profiles: ["+profile+"]}"), config.Types{Policies: standard.Types()})
		if err != nil {
			t.Fatal(err)
		}
		source := pending.Source{Config: func() *config.Config { return c }, Places: (*config.Profile).Places}
		if got := source.Uncalled(&corev1.Pod{Spec: corev1.PodSpec{SchedulerName: "s"}}); got != want {
			t.Errorf("%s: %q, want %q", profile, got, want)
		}
	}
}
