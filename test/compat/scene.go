package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/internal/wiring/doctor"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// mode is whether kube-scheduler sends the names of nodes.
type mode struct {
	name  string
	names bool
}

var modes = []mode{{"names", true}, {"whole nodes", false}}

// outboardConfig has a profile that allocates resources, which is called for the pods that request
// them, and one that is called for all pods. All calls are over mutual TLS.
const outboardConfig = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving:
  tls: {certFile: x, keyFile: x, clientCAFile: x, allowedClients: [kube-scheduler]}
signals:
- {name: licenses, interval: 1s, file: {path: licenses.yaml, about: Keys}}
profiles:
- path: /resources
  managedResources:
  - {name: aliyun.com/gpu-mem}
  - {name: aliyun.com/gpu-count}
  - {name: example.com/cad, ignoredByScheduler: true}
  policies:
  - {type: GPUMemory, weight: 1}
  - {type: Licenses, config: {features: [{name: cad, resource: example.com/cad, server: {signal: licenses}}]}}
- path: /placement
  policies:
  - type: Rules
    weight: 5
    config:
      filters:
      - name: accepted
        message: node(s) are not the one that the pod accepts
        matchConditions:
        - name: accepts
          expression: pod.metadata.?annotations[?"example.com/accepts"].hasValue()
        expression: 'pod.metadata.annotations["example.com/accepts"] == node.metadata.name'
      scores:
      - name: preferred
        matchConditions:
        - name: prefers
          expression: pod.metadata.?annotations[?"example.com/prefers"].hasValue()
        expression: 'pod.metadata.annotations["example.com/prefers"] == node.metadata.name ? 100 : 0'
`

// The numbers of the license server, before and after somebody returns the only seat.
const (
	seatTaken    = "{cad/total: 1, cad/used: 1}\n"
	seatReturned = "{cad/total: 1, cad/used: 0}\n"
)

// scene is a new cluster with one kube-scheduler at a time, and Outboard.
type scene struct {
	*stage.Stage
	outboard *stage.Outboard
	mode     mode
	tested   pair
	// printed is the configuration that outboard setup scheduler prints, in the mode.
	printed string
	running *controlplane.Scheduler // nil if none runs
}

// newScene creates the cluster, with three equal nodes of which the first has two GPUs with 8 units
// of memory each. When ctx ends, so does what it starts in the background. Stop the scene.
func newScene(ctx context.Context, o stage.Options, tested pair, m mode) (*scene, error) {
	set, err := stage.Set(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &scene{Stage: set, mode: m, tested: tested}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *scene) prepare(ctx context.Context) error {
	var nodes []*corev1.Node
	for _, name := range []string{"a", "b", "c"} {
		spec := controlplane.NodeSpec{Name: name}
		if name == "a" {
			spec.Resources = map[string]string{"aliyun.com/gpu-mem": "16", "aliyun.com/gpu-count": "2"}
		}
		nodes = append(nodes, spec.Node())
	}
	if err := controlplane.CreateNodes(ctx, s.Client, nodes...); err != nil {
		return err
	}
	for name, value := range map[string]int32{"low": 10, "middle": 20, "high": 1000} {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		if _, err := s.Client.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := s.WriteFile("licenses.yaml", []byte(seatTaken)); err != nil {
		return err
	}
	var err error
	if s.outboard, err = s.StartOutboard(ctx, outboardConfig); err != nil {
		return err
	}
	printed, err := s.command(ctx, "setup", "scheduler", s.outboard.ConfigFile, "--url", s.outboard.URL, "--certificate-dir", filepath.Dir(s.outboard.CAFile))
	if err != nil {
		return err
	}
	if s.printed, err = s.inMode(printed); err != nil {
		return err
	}
	go controlplane.FinishDeletions(ctx, s.Client)
	return nil
}

// inMode returns the configuration for calls in the mode.
func (s *scene) inMode(config []byte) (string, error) {
	if s.mode.names {
		return string(config), nil
	}
	return edited(string(config), func(extender map[string]any) { extender["nodeCacheCapable"] = false })
}

// edited returns a KubeSchedulerConfiguration with changed extenders.
func edited(config string, change func(extender map[string]any)) (string, error) {
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(config), &parsed); err != nil {
		return "", err
	}
	extenders, _ := parsed["extenders"].([]any)
	if len(extenders) == 0 {
		return "", errors.New("the configuration has no extenders")
	}
	for _, e := range extenders {
		extender, ok := e.(map[string]any)
		if !ok {
			return "", errors.New("an extender is not a mapping")
		}
		change(extender)
	}
	text, err := yaml.Marshal(parsed)
	return string(text), err
}

// play runs a scenario, and then deletes its pods.
func (s *scene) play(ctx context.Context, sc scenario) (outcome string, err error) {
	err = inTurn(ctx, patience, func(ctx context.Context) (err error) {
		outcome, err = sc.play(s, ctx)
		return err
	}, s.deletePods)
	return outcome, err
}

// inTurn calls the functions one after the other, also if one of them fails, each with a context
// that ends after the limit.
func inTurn(ctx context.Context, limit time.Duration, functions ...func(context.Context) error) error {
	var errs []error
	for _, f := range functions {
		bounded, cancel := context.WithTimeout(ctx, limit)
		errs = append(errs, f(bounded))
		cancel()
	}
	return errors.Join(errs...)
}

// schedule starts kube-scheduler with the configuration, instead of the running one.
func (s *scene) schedule(ctx context.Context, config string) (err error) {
	if s.running != nil {
		if err := s.running.Stop(); err != nil {
			return err
		}
		s.running = nil
	}
	s.running, err = s.StartScheduler(ctx, controlplane.SchedulerOptions{Config: config, Path: s.tested.schedulerPath})
	return err
}

// command runs outboard and returns what it prints.
func (s *scene) command(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.Binary(), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("outboard %s: %w\n%s%s", args[0], err, out, stderr.Bytes())
	}
	return out, nil
}

// doctor returns the codes of the errors that outboard check finds in the configuration for this
// kube-scheduler.
func (s *scene) doctor(ctx context.Context, config string) ([]string, error) {
	file := filepath.Join(s.Dir(), "examined.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	// It fails if there are errors in the file, too.
	out, failure := s.command(ctx, "check", s.outboard.ConfigFile, "--scheduler", file,
		"--kubernetes-version", s.tested.scheduler, "-o", "json")
	var report struct{ Findings []doctor.Finding }
	if err := json.Unmarshal(out, &report); err != nil {
		return nil, errors.Join(failure, err)
	}
	var codes []string
	for _, f := range report.Findings {
		if f.Severity == doctor.Error && !slices.Contains(codes, f.Code) {
			codes = append(codes, f.Code)
		}
	}
	return codes, nil
}

// bound creates the pod, waits until it is bound, although it may be rejected at first, and returns
// it when Outboard knows its node.
func (s *scene) bound(ctx context.Context, spec controlplane.PodSpec) (*corev1.Pod, error) {
	placed, err := s.Place(ctx, spec.Pod())
	if err != nil {
		return nil, err
	}
	pod := placed.Pod
	if placed.Waiting != "" {
		if pod, err = controlplane.WaitForPodBound(ctx, s.Client, pod); err != nil {
			return nil, err
		}
	}
	for {
		document, err := s.explain(ctx, spec.Name)
		if err != nil {
			return nil, err
		}
		if document.Node == pod.Spec.NodeName {
			return pod, nil
		}
		if err := pause(ctx); err != nil {
			return nil, fmt.Errorf("explain does not show that %s is on %s: %w", spec.Name, pod.Spec.NodeName, err)
		}
	}
}

// explain returns what Outboard knows about the pod, with all its decisions.
func (s *scene) explain(ctx context.Context, pod string) (*explain.Document, error) {
	return explain.Fetch(ctx, http.DefaultClient, s.outboard.Admin, url.Values{"pod": {pod}, "decisions": {"1000"}})
}

// rejected creates the pod and returns kube-scheduler's reason for which it is not bound.
func (s *scene) rejected(ctx context.Context, spec controlplane.PodSpec) (*corev1.Pod, string, error) {
	placed, err := s.Place(ctx, spec.Pod())
	if err == nil && placed.Waiting == "" {
		err = fmt.Errorf("pod %s is bound to %s", spec.Name, placed.Pod.Spec.NodeName)
	}
	return placed.Pod, placed.Waiting, err
}

// asleep returns when kube-scheduler has not retried the pod for a while.
func (s *scene) asleep(ctx context.Context, pod *corev1.Pod) error {
	const calm = 3 * time.Second
	attempts, since := -1, time.Now()
	for time.Since(since) < calm {
		document, err := s.explain(ctx, pod.Name)
		if err != nil {
			return err
		}
		n := 0
		for _, d := range document.Decisions {
			if d.Verb == decision.Filter {
				n++
			}
		}
		if n != attempts {
			attempts, since = n, time.Now()
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("kube-scheduler retries %s without end: %w", pod.Name, err)
		}
	}
	return nil
}

// pause waits before the next look at something that cannot be watched.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(50 * time.Millisecond):
		return nil
	}
}

// left returns those of the pods that still exist, perhaps with a deletionTimestamp.
func (s *scene) left(ctx context.Context, pods []*corev1.Pod) (left []*corev1.Pod, err error) {
	for _, pod := range pods {
		_, err := s.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil {
			left = append(left, pod)
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return left, nil
}

// deletePods deletes all pods of the default namespace, without waiting for a kubelet.
func (s *scene) deletePods(ctx context.Context) error {
	pods, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if err := controlplane.DeletePod(ctx, s.Client, &pods.Items[i]); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// ledgers returns all ledgers, as the API server has them.
func (s *scene) ledgers(ctx context.Context) ([]ledger.Object, error) {
	data, err := s.Client.Discovery().RESTClient().Get().AbsPath("/apis", ledger.GroupVersion.String(), ledger.Resource.Resource).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var list ledger.ObjectList
	err = json.Unmarshal(data, &list)
	return list.Items, err
}
