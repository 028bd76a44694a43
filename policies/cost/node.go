package cost

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

// host is the data of a Node object.
type host struct {
	spot bool
	// allocatable has only positive amounts, in cores, bytes or units.
	allocatable map[corev1.ResourceName]float64
	offers      []offer // by source
}

// offer is the data of a Node object for one source.
type offer struct {
	price float64 // notAPrice if the source is a signal, or has no price
	key   string  // in a signal with keys; "": the node has none
}

const notAPrice = -1

func valid(price float64) bool { return price >= 0 && price <= maxPrice }

// hostOf is the fact host.
func (p *cost) hostOf(n *corev1.Node) host {
	h := host{allocatable: map[corev1.ResourceName]float64{}, offers: make([]offer, len(p.config.Prices))}
	for i := range p.config.Spot.NodeLabels {
		h.spot = h.spot || p.config.Spot.NodeLabels[i].In(n.Labels)
	}
	for name, quantity := range n.Status.Allocatable {
		if amount := quantity.AsApproximateFloat64(); amount > 0 {
			h.allocatable[name] = amount
		}
	}
	for i := range p.config.Prices {
		h.offers[i] = p.config.Prices[i].offer(n)
	}
	return h
}

func (s *Source) offer(n *corev1.Node) offer {
	if s.PriceFrom != nil {
		text, _ := s.PriceFrom.Of(n)
		return offer{price: parsePrice(text)}
	}
	values := make([]string, len(s.KeyLabels))
	for i, key := range s.KeyLabels {
		if values[i] = n.Labels[key]; values[i] == "" {
			return offer{price: notAPrice}
		}
	}
	return offer{price: notAPrice, key: strings.Join(values, "/")}
}

func parsePrice(text string) float64 {
	price, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !valid(price) {
		return notAPrice
	}
	return price
}

// isUsed reports whether the node has pods that prevent its removal.
func isUsed(n *snapshot.Node) bool {
	return slices.ContainsFunc(n.Pods, func(pod *corev1.Pod) bool {
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.Kind == "DaemonSet" {
			return false
		}
		_, static := pod.Annotations[corev1.MirrorPodAnnotationKey]
		return !static && pod.DeletionTimestamp == nil
	})
}
