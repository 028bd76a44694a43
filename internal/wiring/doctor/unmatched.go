package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// unmatched reports labels and annotations in which policies expect something of nodes and which no
// node has, and selectors that match no pod.
func (c *checker) unmatched() {
	if c.Config == nil || !c.listed("nodes") || !c.listed("pods") {
		return
	}
	for i, p := range c.Config.Profiles {
		for j, q := range p.Policies {
			var config map[string]any
			_ = q.Config.Decode(&config) // it has been encoded from a valid one
			c.unmatchedIn(fmt.Sprintf("profiles[%d].policies[%d].config", i, j), "", config)
		}
	}
}

// unmatchedIn checks the value of the field name at path.
func (c *checker) unmatchedIn(path, name string, value any) {
	switch v := value.(type) {
	case map[string]any:
		if name == "selector" {
			c.unmatchedSelector(path, v)
		}
		for _, field := range slices.Sorted(maps.Keys(v)) {
			if key, _ := v[field].(string); key != "" && strings.HasSuffix(name, "From") && (field == "annotation" || field == "label") {
				c.unmatchedKey(path, field, key)
			}
			c.unmatchedIn(path+"."+field, field, v[field])
		}
	case []any:
		for i, item := range v {
			at := fmt.Sprintf("%s[%d]", path, i)
			if key, text := item.(string); text && name == "keyLabels" {
				c.unmatchedKey(at, "label", key)
			}
			c.unmatchedIn(at, "", item)
		}
	}
}

func (c *checker) unmatchedKey(path, kind, key string) {
	has := func(n corev1.Node) bool {
		_, label := n.Labels[key]
		_, annotation := n.Annotations[key]
		return kind == "label" && label || kind == "annotation" && annotation
	}
	if len(c.Cluster.Nodes) > 0 && !slices.ContainsFunc(c.Cluster.Nodes, has) {
		c.elsewhere(Warning, "NothingMatches", c.ConfigFile, path, "no node has the "+kind+" "+key, "the policy decides as if every node declared nothing", "correct the key, or set it on the nodes")
	}
}

func (c *checker) unmatchedSelector(path string, value map[string]any) {
	var selector metav1.LabelSelector
	if runtime.DefaultUnstructuredConverter.FromUnstructured(value, &selector) != nil {
		return
	}
	s, err := metav1.LabelSelectorAsSelector(&selector)
	matches := func(p corev1.Pod) bool { return s.Matches(labels.Set(p.Labels)) }
	if err == nil && len(c.Cluster.Pods) > 0 && !slices.ContainsFunc(c.Cluster.Pods, matches) {
		c.elsewhere(Note, "NothingMatches", c.ConfigFile, path, "no pod has the labels "+s.String(), "it has no effect on the pods of the cluster", "")
	}
}
