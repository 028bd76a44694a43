package search

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// views holds each view once: those with the same content are the same View, so that it can be numbered.
var views struct {
	sync.Mutex
	byKey   map[string]*snapshot.View
	numbers map[*snapshot.View]int
	fits    map[fitKey]bool
}

// viewOf returns the View that has these pods, and the ledgers of the replica without the claims of pods that are gone.
func viewOf(s *Scope, pods []counted, r *replica) *snapshot.View {
	var key strings.Builder
	fmt.Fprint(&key, len(s.nodes))
	for p, c := range pods {
		if c.pod != nil {
			fmt.Fprintf(&key, "|%d %s %t %s", p, c.node, c.pod.Spec.NodeName != "", c.pod.Annotations[annotation])
		}
	}
	shown := make([]*snapshot.Ledger, len(r.ledgers))
	for l, o := range r.ledgers {
		if o == nil {
			continue
		}
		shown[l] = o.Spec.Without(func(uid types.UID) bool { return r.pods[s.podNamed(string(uid))] == nil })
		for _, u := range shown[l].Units {
			fmt.Fprintf(&key, "/%d %s", l, u.Name)
			for _, claim := range u.Claims {
				fmt.Fprintf(&key, " %s", claim.Pod)
			}
		}
	}
	views.Lock()
	defer views.Unlock()
	if view := views.byKey[key.String()]; view != nil {
		return view
	}
	var b snapshot.Builder
	for _, n := range s.nodes {
		b.SetNode(n)
	}
	for _, c := range pods {
		if c.pod != nil {
			b.AssumePod(c.pod, c.node)
		}
	}
	for _, l := range shown {
		if l != nil {
			b.SetLedger(l)
		}
	}
	view := b.View()
	if views.byKey == nil {
		views.byKey, views.numbers = map[string]*snapshot.View{}, map[*snapshot.View]int{}
	}
	views.byKey[key.String()] = view
	views.numbers[view] = len(views.numbers)
	return view
}

// fits reports whether the pod fits on the node. All pods request the same.
func (s *Scope) fits(view *snapshot.View, pod *corev1.Pod, n int) bool {
	views.Lock()
	key := fitKey{view, pod.UID, n}
	fits, known := views.fits[key]
	views.Unlock()
	if known {
		return fits
	}
	fits, err := s.engine.FitsAny(context.Background(), engine.Request{Pod: pod, View: view, Nodes: []*snapshot.Node{view.Node(s.nodes[n].Name)}})
	if err != nil {
		panic(err)
	}
	views.Lock()
	defer views.Unlock()
	if views.fits == nil {
		views.fits = map[fitKey]bool{}
	}
	views.fits[key] = fits
	return fits
}

type fitKey struct {
	view *snapshot.View
	pod  types.UID
	node int
}

// viewNumber returns the number of the View.
func viewNumber(v *snapshot.View) int {
	views.Lock()
	defer views.Unlock()
	return views.numbers[v]
}
