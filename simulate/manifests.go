package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"outboard.dev/outboard/snapshot"
)

// Objects are what a file of manifests holds.
type Objects struct {
	Nodes []*corev1.Node
	Pods  []*corev1.Pod
}

// ReadManifests reads YAML or JSON: documents with one object each, or lists as kubectl
// prints them. Objects of other kinds are passed over.
func ReadManifests(r io.Reader) (*Objects, error) {
	o := &Objects{}
	for decoder := yaml.NewYAMLOrJSONDecoder(r, 4096); ; {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return o, o.check()
		} else if err != nil {
			return nil, err
		}
		if err := o.add(raw); err != nil {
			return nil, err
		}
	}
}

func (o *Objects) add(raw json.RawMessage) error {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	var head struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return err
	}
	switch head.Kind {
	case "List", "NodeList", "PodList":
		for _, item := range head.Items {
			if err := o.add(item); err != nil {
				return err
			}
		}
	case "Node":
		n := new(corev1.Node)
		if err := json.Unmarshal(raw, n); err != nil {
			return fmt.Errorf("a Node: %w", err)
		}
		snapshot.TrimNode(n)
		o.Nodes = append(o.Nodes, n)
	case "Pod":
		p := new(corev1.Pod)
		if err := json.Unmarshal(raw, p); err != nil {
			return fmt.Errorf("a Pod: %w", err)
		}
		snapshot.TrimPod(p)
		o.Pods = append(o.Pods, p)
	case "":
		return errors.New("an object says no kind")
	}
	return nil
}

// check completes what manifests leave out that an API server would fill in.
func (o *Objects) check() error {
	names := map[string]bool{}
	for _, n := range o.Nodes {
		if n.Name == "" || names[n.Name] {
			return fmt.Errorf("node %q: every node needs a name of its own", n.Name)
		}
		names[n.Name] = true
		if n.UID == "" {
			n.UID = types.UID(n.Name)
		}
		if n.Status.Allocatable == nil {
			n.Status.Allocatable = n.Status.Capacity
		}
	}
	uids := map[types.UID]bool{}
	for _, p := range o.Pods {
		if p.Namespace == "" {
			p.Namespace = "default"
		}
		if p.Name == "" && p.GenerateName == "" {
			return errors.New("a pod has no name")
		}
		if p.UID == "" {
			p.UID = types.UID(p.Namespace + "/" + p.Name)
		}
		if uids[p.UID] {
			return fmt.Errorf("pod %s/%s is there twice", p.Namespace, p.Name)
		}
		uids[p.UID] = true
		completeRequests(p.Spec.Containers)
		completeRequests(p.Spec.InitContainers)
	}
	return nil
}

// completeRequests makes limits the requests where there are none.
func completeRequests(containers []corev1.Container) {
	for i := range containers {
		r := &containers[i].Resources
		for name, limit := range r.Limits {
			if _, ok := r.Requests[name]; ok {
				continue
			}
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[name] = limit
		}
	}
}

// Again are jobs like the pods, which are on no node. What annotations say that they
// had is written anew when they are bound.
func Again(pods []*corev1.Pod) []Job {
	jobs := make([]Job, len(pods))
	for i, like := range pods {
		p := *like // shallow: what follows is replaced, not written to
		p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
		jobs[i] = Job{Pod: &p}
	}
	return jobs
}
