package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/test/controlplane"
)

// Example is a folder as in examples/: two configurations, nodes, and pods in the order of their
// creation.
type Example struct {
	Outboard, Scheduler string
	Nodes               []*corev1.Node
	Pods                []*corev1.Pod
	// Data are the other files of the folder, by name, for signals to read.
	Data map[string][]byte
	// Others are the objects of other clusters, by name: the files NAME.cluster.yaml.
	Others map[string][]byte
}

// ReadExample reads the folder. Without nodes.yaml or pods.yaml, there are no nodes or pods.
func ReadExample(dir string) (*Example, error) {
	e := new(Example)
	for name, into := range map[string]*string{"outboard.yaml": &e.Outboard, "scheduler.yaml": &e.Scheduler} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		*into = string(data)
	}
	var err error
	if e.Nodes, err = readObjects[corev1.Node](filepath.Join(dir, "nodes.yaml")); err != nil {
		return nil, err
	}
	if e.Pods, err = readObjects[corev1.Pod](filepath.Join(dir, "pods.yaml")); err != nil {
		return nil, err
	}
	return e, e.readMore(dir)
}

// readMore reads the files that are neither configurations nor objects of this cluster.
func (e *Example) readMore(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	e.Data, e.Others = map[string][]byte{}, map[string][]byte{}
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		switch name := entry.Name(); name {
		case "README.md", "outboard.yaml", "scheduler.yaml", "nodes.yaml", "pods.yaml":
		default:
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return err
			}
			if other, ok := strings.CutSuffix(name, ".cluster.yaml"); ok {
				e.Others[other] = data
			} else {
				e.Data[name] = data
			}
		}
	}
	return nil
}

func readObjects[T any](path string) ([]*T, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var objects []*T
	for i, doc := range bytes.Split(data, []byte("\n---\n")) {
		if objects, err = appendObjects(objects, doc); err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", path, i+1, err)
		}
	}
	return objects, nil
}

// appendObjects appends the object of a document, or those of a List, as kubectl get prints it. The API server creates no object that has
// a resource version, so the objects have none.
func appendObjects[T any](objects []*T, doc []byte) ([]*T, error) {
	var is struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := yaml.Unmarshal(doc, &is); err != nil {
		return nil, err
	}
	if is.Kind == "List" {
		for i, item := range is.Items {
			var err error
			if objects, err = appendObjects(objects, item); err != nil {
				return nil, fmt.Errorf("item %d: %w", i+1, err)
			}
		}
		return objects, nil
	}
	if want := reflect.TypeFor[T]().Name(); is.Kind != want {
		return nil, fmt.Errorf("the kind is %q: must be %s, or a List of these", is.Kind, want)
	}
	object := new(T)
	if err := yaml.UnmarshalStrict(doc, object); err != nil {
		return nil, err
	}
	any(object).(metav1.Object).SetResourceVersion("")
	return append(objects, object), nil
}

// Play is an example on a stage: its nodes, Outboard and kube-scheduler.
type Play struct {
	*Stage
	Example   *Example
	Outboard  *Outboard
	Scheduler *controlplane.Scheduler
}

// Play sets the example up, without its pods. Closing the stage ends it. The extenders in the
// example's configuration that are not at Outboard's address must run already, and keep their addresses.
func (s *Stage) Play(ctx context.Context, e *Example) (*Play, error) {
	p := &Play{Stage: s, Example: e}
	if err := e.awaitForeign(ctx); err != nil {
		return nil, err
	}
	if err := controlplane.CreateNodes(ctx, s.Client, e.Nodes...); err != nil {
		return nil, err
	}
	if err := s.playOthers(ctx, e); err != nil {
		return nil, err
	}
	for name, data := range e.Data {
		if err := s.WriteFile(name, data); err != nil {
			return nil, err
		}
	}
	var err error
	if p.Outboard, err = s.StartOutboard(ctx, e.Outboard); err != nil {
		return nil, err
	}
	address, err := e.Address()
	if err != nil {
		return nil, err
	}
	config, err := p.Outboard.schedulerConfig(e.Scheduler, func(prefix string) bool { return calls(prefix, address) })
	if err != nil {
		return nil, err
	}
	p.Scheduler, err = s.StartScheduler(ctx, controlplane.SchedulerOptions{Config: config})
	return p, err
}

// WriteFile atomically writes a file in the directory of Outboard's configuration, where relative
// paths begin.
func (s *Stage) WriteFile(name string, data []byte) error {
	path := filepath.Join(s.Dir(), name)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Outcome is what kube-scheduler has decided about a pod.
type Outcome struct {
	Pod *corev1.Pod
	// Waiting is kube-scheduler's reason if the pod is on no node.
	Waiting string
}

// Place creates the pod and returns when kube-scheduler has bound it or has reported why it cannot.
func (s *Stage) Place(ctx context.Context, pod *corev1.Pod) (Outcome, error) {
	pod = pod.DeepCopy()
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	created, err := s.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return Outcome{}, fmt.Errorf("creating pod %s: %w", pod.Name, err)
	}
	decided, err := controlplane.WaitForPod(ctx, s.Client, created, func(p *corev1.Pod) (bool, error) {
		return p.Spec.NodeName != "" || Waiting(p) != "", nil
	})
	if err != nil {
		return Outcome{}, err
	}
	if decided.Spec.NodeName != "" {
		return Outcome{Pod: decided}, nil
	}
	return Outcome{Pod: decided, Waiting: Waiting(decided)}, nil
}

// Waiting returns why kube-scheduler has not placed the pod; "" if it has not tried.
func Waiting(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}
