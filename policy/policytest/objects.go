package policytest

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/policy"
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
	strict, err := json.UnmarshalStrict(asJSON, into)
	return errors.Join(append(strict, err)...)
}

func must[T any](objects []T, err error) []T {
	if err != nil {
		panic(fmt.Sprintf("policytest: %v", err))
	}
	return objects
}
