package policytest

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Nodes returns the nodes in a YAML text: a list, or documents separated by "---". It panics if the
// text is invalid.
func Nodes(text string) []*corev1.Node { return must(parseNodes(text)) }

// Pods returns the pods in a YAML text: a list, or documents separated by "---". As in a cluster,
// each has a namespace (by default "default") and a UID. It panics if the text is invalid.
func Pods(text string) []*corev1.Pod { return must(parsePods(text)) }

// FromYAML returns a function that builds a policy from its configuration in YAML, for [Options].
// Decoding is strict.
func FromYAML(kind policy.Type, config string) func() (policy.Policy, error) {
	return func() (policy.Policy, error) {
		return kind.New(func(into any) error { return unmarshal([]byte(config), into) })
	}
}

func parseNodes(text string) ([]*corev1.Node, error) {
	nodes, err := parse[corev1.Node](text)
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		if node.Name == "" {
			return nil, errors.New("a node has no name")
		}
	}
	return nodes, nil
}

func parsePods(text string) ([]*corev1.Pod, error) {
	pods, err := parse[corev1.Pod](text)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		pod.Namespace = cmp.Or(pod.Namespace, "default")
		pod.UID = cmp.Or(pod.UID, types.UID(podName(pod)))
	}
	return pods, nil
}

func parse[T any](text string) ([]*T, error) {
	var all []*T
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		asJSON, err := yaml.YAMLToJSON(document)
		if err != nil {
			return nil, err
		}
		var objects []*T
		switch {
		case bytes.Equal(asJSON, []byte("null")):
		case asJSON[0] == '[':
			err = unmarshal(document, &objects)
		default:
			objects = []*T{new(T)}
			err = unmarshal(document, objects[0])
		}
		if err != nil {
			return nil, err
		}
		for i, object := range objects {
			if object == nil {
				return nil, fmt.Errorf("item %d of a list is empty", i)
			}
		}
		all = append(all, objects...)
	}
}

// unmarshal is strict: it rejects unknown and duplicate fields, and is case-sensitive.
func unmarshal(document []byte, into any) error {
	asJSON, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	strict, err := strictjson.UnmarshalStrict(asJSON, into)
	return errors.Join(append(strict, err)...)
}

func must[T any](objects []T, err error) []T {
	if err != nil {
		panic(fmt.Sprintf("policytest: %v", err))
	}
	return objects
}

// Now is the default time of the values of [Signals].
var Now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// Signals returns the signals in a YAML mapping from their names to their values: by key, a number,
// or a mapping with the number, its time, and whether it is stale. It panics if the text is
// invalid.
//
//	cpu:
//	  a: 0.25
//	  b: {number: 0.5, at: "2026-01-01T11:59:30Z"}
//	  c: {number: 0.5, stale: true}
func Signals(text string) []*snapshot.Signal { return must(parseSignals(text)) }

type signalValue struct {
	Number float64   `json:"number"`
	At     time.Time `json:"at"`
	Stale  bool      `json:"stale"`
}

func (v *signalValue) UnmarshalJSON(data []byte) error {
	if data[0] != '{' {
		return json.Unmarshal(data, &v.Number)
	}
	type plain signalValue
	return unmarshal(data, (*plain)(v))
}

func parseSignals(text string) ([]*snapshot.Signal, error) {
	var written map[string]map[string]signalValue
	if err := unmarshal([]byte(text), &written); err != nil {
		return nil, fmt.Errorf("signals: %w", err)
	}
	var signals []*snapshot.Signal
	for _, name := range slices.Sorted(maps.Keys(written)) {
		values := map[string]snapshot.Value{}
		for key, v := range written[name] {
			if v.At.IsZero() {
				v.At = Now
			}
			values[key] = snapshot.Value{Number: v.Number, At: v.At, Stale: v.Stale}
		}
		signals = append(signals, snapshot.NewSignal(name, values))
	}
	return signals, nil
}

// Devices returns a function that adds the objects of a YAML text to a View, for Options.Extend:
// ResourceSlices, ResourceClaims, DeviceClasses and DeviceTaintRules, in a list or as documents
// separated by "---". They are trimmed, and have the defaults of the API server: claims have the
// namespace "default", and each request is for one device. Devices panics if the text is invalid.
func Devices(text string) func(*snapshot.Builder) {
	extend, err := parseDevices(text)
	if err != nil {
		panic(fmt.Sprintf("policytest: %v", err))
	}
	return extend
}

type deviceObject struct{ add func(*snapshot.Builder) }

func (o *deviceObject) UnmarshalJSON(data []byte) (err error) {
	var is struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(data, &is); err != nil {
		return err
	}
	data = bytes.Clone(data) // each View has objects of its own
	switch is.Kind {
	case "ResourceSlice":
		o.add, err = adding(data, func(b *snapshot.Builder, s *resourcev1.ResourceSlice) {
			s.UID = types.UID(is.Kind + s.Name)
			snapshot.TrimResourceSlice(s)
			b.SetResourceSlice(s)
		})
	case "ResourceClaim":
		o.add, err = adding(data, func(b *snapshot.Builder, c *resourcev1.ResourceClaim) {
			c.Namespace, c.UID = cmp.Or(c.Namespace, "default"), types.UID(is.Kind+c.Name)
			for i := range c.Spec.Devices.Requests {
				if r := c.Spec.Devices.Requests[i].Exactly; r != nil && r.AllocationMode == "" {
					r.AllocationMode, r.Count = resourcev1.DeviceAllocationModeExactCount, max(1, r.Count)
				}
			}
			snapshot.TrimResourceClaim(c)
			b.SetResourceClaim(c)
		})
	case "DeviceClass":
		o.add, err = adding(data, (*snapshot.Builder).SetDeviceClass)
	case "DeviceTaintRule":
		o.add, err = adding(data, (*snapshot.Builder).SetDeviceTaintRule)
	default:
		err = fmt.Errorf("kind %q: must be ResourceSlice, ResourceClaim, DeviceClass or DeviceTaintRule", is.Kind)
	}
	return err
}

// adding returns a function that adds a new object with this content.
func adding[T any](data []byte, add func(*snapshot.Builder, *T)) (func(*snapshot.Builder), error) {
	return func(b *snapshot.Builder) {
		object := new(T)
		_ = unmarshal(data, object)
		add(b, object)
	}, unmarshal(data, new(T))
}

func parseDevices(text string) (func(*snapshot.Builder), error) {
	objects, err := parse[deviceObject](text)
	if err != nil {
		return nil, err
	}
	return func(b *snapshot.Builder) {
		for _, o := range objects {
			o.add(b)
		}
	}, nil
}
