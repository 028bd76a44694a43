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

// Objects are the objects of a manifest file.
type Objects struct {
	Nodes   []*corev1.Node
	Pods    []*corev1.Pod
	Devices Devices
}

// ReadManifests reads YAML or JSON: documents with one object each, or lists as printed by kubectl.
// It ignores objects of other kinds.
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
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return err
	}
	switch head.Kind {
	case "List", "NodeList", "PodList", "ResourceSliceList", "DeviceClassList", "ResourceClaimList", "ResourceClaimTemplateList", "DeviceTaintRuleList":
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
		return errors.New("an object has no kind")
	default:
		return o.Devices.add(head.APIVersion, head.Kind, raw)
	}
	return nil
}

// check fills in what an API server would add, and returns an error for invalid objects.
func (o *Objects) check() error {
	names := map[string]bool{}
	for _, n := range o.Nodes {
		if n.Name == "" || names[n.Name] {
			return fmt.Errorf("node %q: nodes must have unique names", n.Name)
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
			return fmt.Errorf("duplicate pod %s/%s", p.Namespace, p.Name)
		}
		uids[p.UID] = true
		snapshot.DefaultRequests(p)
	}
	return o.Devices.check()
}

// Again returns copies of the pods that are not bound. Annotations of allocations are set again when
// the copies are bound.
func Again(pods []*corev1.Pod) []*corev1.Pod {
	pending := make([]*corev1.Pod, len(pods))
	for i, like := range pods {
		p := *like // shallow: fields are replaced, not changed
		p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
		pending[i] = &p
	}
	return pending
}
