package remoteclusters

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/snapshot"
)

// Explain implements policy.Explainer.
func (c *cycle) Explain(n *snapshot.Node) []string {
	if n == nil {
		return c.explainClusters()
	}
	switch place := *c.policy.places.Of(n); {
	case place == home:
		return nil
	case place == unknown:
		return []string{fmt.Sprintf("represents cluster %q, which is not configured", n.Object.Labels[c.policy.config.ClusterLabel])}
	case !c.offers[place].known:
		return []string{c.missing(place)}
	default:
		return c.explainOffer(place)
	}
}

// explainClusters tells which clusters no pod can go to now.
func (c *cycle) explainClusters() []string {
	var said []string
	for place := range c.offers {
		if !c.offers[place].known {
			said = append(said, c.missing(place))
		}
	}
	return said
}

func (c *cycle) missing(place int) string {
	cluster, o := &c.policy.config.Clusters[place], &c.offers[place]
	if o.at.IsZero() {
		return fmt.Sprintf("what cluster %s has left is unknown: signal %s has no values", cluster.Name, cluster.Signal)
	}
	return fmt.Sprintf("what cluster %s has left is unknown: signal %s is stale, from %s", cluster.Name, cluster.Signal, when(o.at))
}

func (c *cycle) explainOffer(place int) []string {
	cluster, o := &c.policy.config.Clusters[place], &c.offers[place]
	said := []string{fmt.Sprintf("represents cluster %s, as of %s; %d pod(s) have been bound to it since %s",
		cluster.Name, when(o.at), o.pods, when(o.since))}
	for j, a := range c.asked {
		s := &o.stocks[j]
		text := fmt.Sprintf("%s: %s free", a.resource, quantity(a.resource, s.free))
		if s.total > 0 {
			text += " of " + quantity(a.resource, s.total)
		}
		text += fmt.Sprintf(" - %s for these pods = %s", quantity(a.resource, s.taken), quantity(a.resource, s.left()))
		if s.largest >= 0 {
			text += fmt.Sprintf(", at most %s on one node", quantity(a.resource, s.largest))
		}
		said = append(said, text+fmt.Sprintf("; the pod requests %s", quantity(a.resource, a.n)))
	}
	if rest, of, ok := c.rest(place); ok {
		said = append(said, fmt.Sprintf("with the pod, %.0f%% of the cluster's %s is left; its weight is %d, and the largest %d", 100*rest, of, cluster.weight(), c.policy.largest))
	}
	return said
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
