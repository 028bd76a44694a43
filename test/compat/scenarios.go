package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/measure"
)

// patience bounds one scenario, and the deletion of its pods: much longer than either takes on a
// slow machine.
const patience = 10 * time.Minute

// scenario is what a kube-scheduler does together with Outboard. It returns its outcome.
type scenario struct {
	name string
	play func(*scene, context.Context) (string, error)
}

// scenarios run one after the other. The second one starts the kube-scheduler of those that follow,
// preempt needs GPUs that were never allocated, and the last one ends Outboard.
var scenarios = []scenario{
	{"mutual TLS", (*scene).mutualTLS},
	{"configuration", (*scene).configuration},
	{"filter", (*scene).filter},
	{"prioritize", (*scene).prioritize},
	{"preempt", (*scene).preempt},
	{"empty victims", (*scene).emptyVictims},
	{"bind", (*scene).bind},
	{"requeue", (*scene).requeue},
	{"crowd", (*scene).crowd},
	{"own scores", (*scene).ownScores},
	{"ignorable binder", (*scene).ignorableBinder},
}

// Without a client certificate, kube-scheduler gets no response.
func (s *scene) mutualTLS(ctx context.Context) (string, error) {
	config, err := edited(s.printed, func(extender map[string]any) {
		if tls, ok := extender["tlsConfig"].(map[string]any); ok {
			delete(tls, "certFile")
			delete(tls, "keyFile")
		}
	})
	if err != nil {
		return "", err
	}
	if err := s.schedule(ctx, config); err != nil {
		return "", err
	}
	_, reason, err := s.rejected(ctx, gpuPod("stranger", 1, ""))
	if err != nil {
		return "", err
	}
	// kube-scheduler may report that the connection is closed instead of why, so Outboard says it.
	metrics, err := measure.Scrape(ctx, http.DefaultClient, s.outboard.Admin+"/metrics")
	if err == nil && metrics.Sum("outboard_server_refused_callers_total", "reason", "no_certificate") == 0 {
		err = fmt.Errorf("no caller was refused for lack of a certificate, and the pod waits because of %q", reason)
	}
	return passed, err
}

// kube-scheduler starts with the printed configuration, in which the doctor finds no errors but,
// with whole nodes, the one of the scenario about kube-scheduler's own scores.
func (s *scene) configuration(ctx context.Context) (string, error) {
	codes, err := s.doctor(ctx, s.printed)
	if err != nil {
		return "", err
	}
	for _, code := range codes {
		if s.mode.names || code != emptyNodeInfos {
			return "", fmt.Errorf("the doctor finds %s", code)
		}
	}
	return passed, s.schedule(ctx, s.printed)
}

// Each pod gets the only node that a policy does not reject. The event of a pod for which it
// rejects all three nodes has its reason.
func (s *scene) filter(ctx context.Context) (string, error) {
	accepts := func(node string) controlplane.PodSpec {
		return controlplane.PodSpec{Name: "accepts-" + node, Annotations: map[string]string{"example.com/accepts": node}}
	}
	for _, node := range []string{"c", "a", "b"} {
		pod, err := s.bound(ctx, accepts(node))
		if err != nil {
			return "", err
		}
		if pod.Spec.NodeName != node {
			return "", fmt.Errorf("the pod that accepts %s is on %s", node, pod.Spec.NodeName)
		}
	}
	pod, _, err := s.rejected(ctx, accepts("none"))
	if err != nil {
		return "", err
	}
	event, err := controlplane.WaitForPodEvent(ctx, s.Client, pod, "FailedScheduling")
	if err == nil && !strings.Contains(event.Message, "3 node(s) are not the one that the pod accepts") {
		err = fmt.Errorf("the event is %q", event.Message)
	}
	return passed, err
}

// Of equal nodes, each pod gets the one with the best score.
func (s *scene) prioritize(ctx context.Context) (string, error) {
	for _, node := range []string{"c", "a", "b"} {
		pod, err := s.bound(ctx, controlplane.PodSpec{Name: "prefers-" + node, Annotations: map[string]string{"example.com/prefers": node}})
		if err != nil {
			return "", err
		}
		if pod.Spec.NodeName != node {
			return "", fmt.Errorf("the pod that prefers %s is on %s", node, pod.Spec.NodeName)
		}
	}
	return passed, nil
}

const gpuAnnotation = "ALIYUN_COM_GPU_MEM_IDX"

func gpuPod(name string, units int, class string) controlplane.PodSpec {
	return controlplane.PodSpec{Name: name, PriorityClass: class, Resources: map[string]string{"aliyun.com/gpu-mem": fmt.Sprint(units)}}
}

// Each of two GPUs has a pod of low and one of middle priority. A pod that needs a whole GPU evicts
// both pods of one of them, and the pod of low priority of the other, which is what kube-scheduler
// counts.
func (s *scene) preempt(ctx context.Context) (string, error) {
	var middle []*corev1.Pod
	for _, gpu := range []string{"first", "second"} {
		var on []string
		for _, class := range []string{"low", "middle"} {
			pod, err := s.bound(ctx, gpuPod(gpu+"-"+class, 4, class))
			if err != nil {
				return "", err
			}
			on = append(on, pod.Annotations[gpuAnnotation])
			if class == "middle" {
				middle = append(middle, pod)
			}
		}
		if on[0] != on[1] {
			return "", fmt.Errorf("the pods that are to share a GPU are on %v", on)
		}
	}
	urgent, err := s.bound(ctx, gpuPod("urgent", 8, "high"))
	if err != nil {
		return "", err
	}
	left, err := s.left(ctx, middle)
	if err != nil {
		return "", err
	}
	if len(left) != 1 {
		return "", fmt.Errorf("%d of 2 pods of middle priority are left, want 1", len(left))
	}
	if gpu := urgent.Annotations[gpuAnnotation]; left[0].Annotations[gpuAnnotation] == gpu {
		err = fmt.Errorf("%s was not evicted from GPU %s", left[0].Name, gpu)
	}
	return passed, err
}

// A bound pod has an allocation in a ledger, and the annotation with its GPU.
func (s *scene) bind(ctx context.Context) (string, error) {
	pod, err := s.bound(ctx, gpuPod("allocations", 3, ""))
	if err != nil {
		return "", err
	}
	ledgers, err := s.ledgers(ctx)
	if err != nil {
		return "", err
	}
	for i := range ledgers {
		for _, unit := range ledgers[i].Spec.Units {
			for _, allocation := range unit.Allocations {
				if allocation.Pod == pod.UID && allocation.Amount == 3 && unit.Name == pod.Annotations[gpuAnnotation] {
					_, err := s.command(ctx, "gpus", "--audit", "--kubeconfig", s.Kubeconfig(), "--recheck", "10s")
					return passed, err
				}
			}
		}
	}
	return "", fmt.Errorf("no allocation of 3 units of GPU %q is in the ledgers", pod.Annotations[gpuAnnotation])
}

// A pod waits for a license seat, and kube-scheduler does not retry it. When somebody outside the
// cluster returns the seat, Outboard makes kube-scheduler retry it.
func (s *scene) requeue(ctx context.Context) (string, error) {
	pod, reason, err := s.rejected(ctx, controlplane.PodSpec{Name: "waits", Resources: map[string]string{"example.com/cad": "1"}})
	if err != nil {
		return "", err
	}
	if !strings.Contains(reason, "not enough free seats of a floating license") {
		return "", fmt.Errorf("the pod waits because of %q", reason)
	}
	if err := s.asleep(ctx, pod); err != nil {
		return "", err
	}
	if err := s.WriteFile("licenses.yaml", []byte(seatReturned)); err != nil {
		return "", err
	}
	bound, err := controlplane.WaitForPodBound(ctx, s.Client, pod)
	if err == nil && bound.Annotations[cluster.RetryAnnotation] == "" {
		err = errors.New("the pod is bound, but not because of Outboard")
	}
	return passed, err
}

// emptyNodeInfos is the doctor's code for a kube-scheduler that loses the pods of nodes.
const emptyNodeInfos = "EmptyNodeInfos"

// leastAllocated makes free CPU and memory decide.
const leastAllocated = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    score:
      disabled: [{name: "*"}]
      enabled: [{name: NodeResourcesFit, weight: 1}]
extenders:
- {urlPrefix: https://127.0.0.1/placement, filterVerb: filter, nodeCacheCapable: true, httpTimeout: 30s}
`

// After a call of filter, kube-scheduler's own plugins score nodes by the pods that run on them, or
// have lost them, in which case the doctor says so. The busy node is larger, so that its free part
// is larger if its pods do not count.
func (s *scene) ownScores(ctx context.Context) (string, error) {
	pool := map[string]string{"pool": "own-scores"}
	busy := controlplane.NodeSpec{Name: "busy", CPU: "16", Memory: "64Gi", Labels: pool}
	idle := controlplane.NodeSpec{Name: "idle", CPU: "8", Memory: "32Gi", Labels: pool}
	if err := controlplane.CreateNodes(ctx, s.Client, busy.Node(), idle.Node()); err != nil {
		return "", err
	}
	runs := controlplane.PodSpec{Name: "runs", NodeName: "busy", CPU: "12", Memory: "48Gi"}.Pod()
	if _, err := s.Client.CoreV1().Pods(runs.Namespace).Create(ctx, runs, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	config, err := s.outboard.SchedulerConfig(leastAllocated)
	if err != nil {
		return "", err
	}
	if config, err = s.inMode([]byte(config)); err != nil {
		return "", err
	}
	codes, err := s.doctor(ctx, config)
	if err != nil {
		return "", err
	}
	if err := s.schedule(ctx, config); err != nil {
		return "", err
	}
	pod, err := s.bound(ctx, controlplane.PodSpec{Name: "small", CPU: "1", Memory: "1Gi", NodeSelector: pool})
	if err != nil {
		return "", err
	}
	outcome := map[string]string{"idle": kept, "busy": lost}[pod.Spec.NodeName]
	if reported := slices.Contains(codes, emptyNodeInfos); reported != (outcome == lost) {
		return "", fmt.Errorf("kube-scheduler selects %s, and the doctor finds %v", pod.Spec.NodeName, codes)
	}
	return outcome, nil
}

// While an ignorable extender that binds pods does not respond, kube-scheduler binds them itself,
// without what the extender allocates to them, or not at all.
func (s *scene) ignorableBinder(ctx context.Context) (string, error) {
	config, err := edited(s.printed, func(extender map[string]any) { extender["ignorable"] = true })
	if err != nil {
		return "", err
	}
	s.outboard.Kill()
	if err := s.schedule(ctx, config); err != nil {
		return "", err
	}
	placed, err := s.Place(ctx, gpuPod("without", 1, "").Pod())
	if err != nil || placed.Waiting != "" {
		return waits, err
	}
	return bypassed, nil
}
