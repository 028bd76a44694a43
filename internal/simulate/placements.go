package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Placement is where a pod was placed, and which devices it has.
type Placement struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"` // "": none, and Reasons say why
	// Devices are those that its ResourceClaims have, in the order of the pod's claims.
	Devices []PlacedDevice `json:"devices,omitempty"`
	// Units are those in which policies allocated a resource to the pod.
	Units   []PlacedUnit `json:"units,omitempty"`
	Reasons []Reason     `json:"reasons,omitempty"`
}

// PlacedDevice is a device that a claim of the pod has, or a part of one.
type PlacedDevice struct {
	Claim            string                                         `json:"claim"`
	Request          string                                         `json:"request"`
	Driver           string                                         `json:"driver"`
	Pool             string                                         `json:"pool"`
	Device           string                                         `json:"device"`
	ConsumedCapacity map[resourcev1.QualifiedName]resource.Quantity `json:"consumedCapacity,omitempty"`
}

// PlacedUnit is what the pod has of one unit, such as a GPU.
type PlacedUnit struct {
	Resource string `json:"resource"`
	Unit     string `json:"unit"`
	Amount   int64  `json:"amount"`
}

// Place schedules the pods once each, in this order. Each stays, and keeps its name,
// which no running pod may have.
func (w *World) Place(ctx context.Context, pods []*corev1.Pod, seed uint64) ([]Placement, error) {
	r := w.Begin(seed)
	var placements []Placement
	for _, pending := range pods {
		pod := instance(pending, pending.Name, r.now)
		r.arrive(pod)
		placement := Placement{Namespace: pod.Namespace, Name: pod.Name}
		switch err := r.Schedule(ctx, pod); {
		case err == nil:
			placed := r.bound[pod.UID]
			placement.Node, placement.Devices, placement.Units = placed.node.object.Name, r.devicesOf(pod), r.unitsOf(pod, placed)
		case errors.Is(err, ErrNowhere):
			placement.Reasons = r.reasons(pod)
			r.leave(pod)
		default:
			return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		placements = append(placements, placement)
	}
	return placements, nil
}

func (c *cluster) devicesOf(pod *corev1.Pod) (devices []PlacedDevice) {
	for _, claim := range c.claimsOf(pod) {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			devices = append(devices, PlacedDevice{claim.Name, r.Request, r.Driver, r.Pool, r.Device, r.ConsumedCapacity})
		}
	}
	return devices
}

func (c *cluster) unitsOf(pod *corev1.Pod, p *placed) (units []PlacedUnit) {
	for _, key := range p.keys {
		l := c.ledgers[key]
		for i := range l.Units {
			if amount := l.Units[i].Amount(pod.UID); amount > 0 {
				units = append(units, PlacedUnit{key.Resource, l.Units[i].Name, amount})
			}
		}
	}
	return units
}

// WritePlacements writes one line for each pod.
func WritePlacements(w io.Writer, placements []Placement) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "POD\tNODE\tDEVICES")
	for i := range placements {
		p := &placements[i]
		fmt.Fprintf(table, "%s/%s\t%s\t%s\n", p.Namespace, p.Name, cmp.Or(p.Node, "none"), p.text())
	}
	return table.Flush()
}

// text describes what the pod has, or why it fits on no node.
func (p *Placement) text() string {
	var texts []string
	for i := range p.Devices {
		texts = append(texts, p.Devices[i].text())
	}
	for _, u := range p.Units {
		texts = append(texts, fmt.Sprintf("%s (%d of its %s)", u.Unit, u.Amount, u.Resource))
	}
	for _, r := range p.Reasons {
		texts = append(texts, fmt.Sprintf("%d %s", r.Nodes, r.Text))
	}
	return strings.Join(texts, ", ")
}

func (d *PlacedDevice) text() string {
	var amounts []string
	for _, name := range slices.Sorted(maps.Keys(d.ConsumedCapacity)) {
		amount := d.ConsumedCapacity[name]
		amounts = append(amounts, fmt.Sprintf("%s of its %s", amount.String(), name))
	}
	if len(amounts) == 0 {
		return d.Device
	}
	return fmt.Sprintf("%s (%s)", d.Device, strings.Join(amounts, ", "))
}
