package doctor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// unmatched reports labels and annotations in which policies expect something of nodes and which no node has, and selectors that match no
// pod.
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
			key, text := v[field].(string)
			switch {
			case text && key != "" && strings.HasSuffix(name, "From") && field == "annotation":
				c.unmatchedKey(path, "annotation "+key, func(n *corev1.Node) map[string]string { return n.Annotations }, key)
			case text && key != "" && strings.HasSuffix(name, "From") && field == "label":
				c.unmatchedKey(path, "label "+key, func(n *corev1.Node) map[string]string { return n.Labels }, key)
			default:
				c.unmatchedIn(path+"."+field, field, v[field])
			}
		}
	case []any:
		for i, item := range v {
			if key, text := item.(string); text && name == "keyLabels" {
				c.unmatchedKey(fmt.Sprintf("%s[%d]", path, i), "label "+key, func(n *corev1.Node) map[string]string { return n.Labels }, key)
			}
			c.unmatchedIn(fmt.Sprintf("%s[%d]", path, i), "", item)
		}
	}
}

func (c *checker) unmatchedKey(path, what string, of func(*corev1.Node) map[string]string, key string) {
	for i := range c.Cluster.Nodes {
		if _, found := of(&c.Cluster.Nodes[i])[key]; found {
			return
		}
	}
	if len(c.Cluster.Nodes) > 0 {
		c.elsewhere(Warning, "NothingMatches", c.ConfigFile, path, "no node has the "+what, "the policy decides as if every node declared nothing", "correct the key, or set it on the nodes")
	}
}

func (c *checker) unmatchedSelector(path string, value map[string]any) {
	var selector metav1.LabelSelector
	text, err := json.Marshal(value)
	if err != nil || json.Unmarshal(text, &selector) != nil {
		return
	}
	s, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil || len(c.Cluster.Pods) == 0 || slices.ContainsFunc(c.Cluster.Pods, func(p corev1.Pod) bool { return s.Matches(labels.Set(p.Labels)) }) {
		return
	}
	c.elsewhere(Note, "NothingMatches", c.ConfigFile, path, "no pod has the labels "+s.String(), "it has no effect on the pods of the cluster", "")
}
