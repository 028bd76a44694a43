package utilization

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/snapshot"
)

func (c *cycle) Explain(n *snapshot.Node) []string {
	var lines []string
	for i := range c.readings {
		r := &c.readings[i]
		if n == nil {
			lines = append(lines, fmt.Sprintf("%s: the pod is predicted to use %s", r.name(), r.quantity(c.needs[r.kind])))
		} else if l, ok := c.load(r, n); ok {
			lines = append(lines, c.explainLoad(r, l))
		} else {
			lines = append(lines, fmt.Sprintf("%s: unknown (%s)", r.name(), c.missing(r, n)))
		}
	}
	return lines
}

func (c *cycle) explainLoad(r *reading, l load) string {
	text := fmt.Sprintf("%s: %s used of %s at %s", r.name(), percent(l.measured), r.quantity(l.capacity), l.at.UTC().Format(time.RFC3339))
	since := l.at.Add(-c.policy.config.MetricDelay.Duration - r.Window.Duration)
	text += fmt.Sprintf(" + %s by %s bound since %s", percent(l.unmeasuredUse), pods(l.unmeasured), since.UTC().Format(time.RFC3339))
	if r.Window.Duration > 0 {
		text += fmt.Sprintf(", without what a mean over %s has of it", r.Window.Duration)
	}
	text += fmt.Sprintf(" + %s by this pod = %s", percent(l.pod), percent(l.total()))
	return text + fmt.Sprintf("; scores %.0f", l.score())
}

// missing returns why load is not ok.
func (c *cycle) missing(r *reading, n *snapshot.Node) string {
	if v := r.use.Of(n); !v.Current() {
		return v.Missing(r.Signal, "the node")
	}
	return "the node reports none in status.allocatable"
}

func (k kind) name() string { return [kinds]string{cpu: "CPU", memory: "memory"}[k] }

func (k kind) quantity(amount float64) string {
	if k == cpu {
		return resource.NewMilliQuantity(whole(1000*amount), resource.DecimalSI).String()
	}
	return resource.NewQuantity(whole(amount), resource.BinarySI).String()
}

// whole returns the nearest integer that a Quantity can hold with a suffix.
func whole(x float64) int64 { return int64(math.Round(min(x, 1e18))) }

func percent(fraction float64) string { return fmt.Sprintf("%.4g%%", math.Round(1e4*fraction)/100) }

func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}
