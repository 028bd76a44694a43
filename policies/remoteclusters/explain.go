package remoteclusters

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/snapshot"
)

func (c *cycle) Explain(n *snapshot.Node) []string {
	if n == nil {
		return c.explainClusters()
	}
	switch index := *c.policy.cluster.Of(n); {
	case index == local:
		return nil
	case index == unconfigured:
		return []string{fmt.Sprintf("cluster: %q is not configured (label %s)", n.Object.Labels[c.policy.config.ClusterLabel], c.policy.config.ClusterLabel)}
	case !c.states[index].known:
		return []string{c.missing(index)}
	default:
		return c.explainCluster(index)
	}
}

// explainClusters lists the clusters without a current signal.
func (c *cycle) explainClusters() []string {
	var lines []string
	for index := range c.states {
		if !c.states[index].known {
			lines = append(lines, c.missing(index))
		}
	}
	return lines
}

func (c *cycle) missing(index int) string {
	cluster, s := &c.policy.config.Clusters[index], &c.states[index]
	return fmt.Sprintf("cluster %s: unknown (%s)", cluster.Name, s.missing.Missing(cluster.Signal, s.missingKey))
}

func (c *cycle) explainCluster(index int) []string {
	cluster, s := &c.policy.config.Clusters[index], &c.states[index]
	lines := []string{fmt.Sprintf("cluster %s: as of %s; pods bound to it since %s: %d", cluster.Name, when(s.at), when(s.since), s.pods)}
	for j, a := range c.requests {
		r := &s.resources[j]
		text := fmt.Sprintf("%s: %s free", a.resource, quantity(a.resource, r.free))
		if r.total > 0 {
			text += " of " + quantity(a.resource, r.total)
		}
		text += fmt.Sprintf(" - %s for these pods = %s", quantity(a.resource, r.taken), quantity(a.resource, r.left()))
		if r.largest >= 0 {
			text += fmt.Sprintf(", at most %s on one node", quantity(a.resource, r.largest))
		}
		lines = append(lines, text+fmt.Sprintf("; the pod requests %s", quantity(a.resource, a.n)))
	}
	if rest, of, ok := c.rest(index); ok {
		lines = append(lines, fmt.Sprintf("score: by %.0f%% of the cluster's %s left with the pod; weight %d of at most %d", 100*rest, of, cluster.weight(), c.policy.largest))
	}
	return lines
}

func when(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func quantity(name corev1.ResourceName, n int64) string {
	switch name {
	case corev1.ResourceCPU:
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return resource.NewQuantity(n, resource.BinarySI).String()
	}
	return resource.NewQuantity(n, resource.DecimalSI).String()
}
