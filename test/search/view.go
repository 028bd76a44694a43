package search

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
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
	numbers map[*snapshot.View]uint64
	fits    map[fitKey]bool
}

// canonical returns the View that stands for all with the same content.
func (s *Scope) canonical(v *snapshot.View) *snapshot.View {
	var key strings.Builder
	fmt.Fprint(&key, s.Request, s.Devices, s.Victims, s.Preemptors, s.Started, s.Again)
	ledger := func(l *snapshot.Ledger) {
		for i := range l.Units {
			fmt.Fprintf(&key, "/%s %s %d", l.Resource, l.Units[i].Name, l.Units[i].Capacity)
			for _, allocation := range l.Units[i].Allocations {
				key.WriteByte(' ')
				key.WriteString(string(allocation.Pod))
			}
		}
		for i := range l.Pods {
			key.WriteByte('@')
			key.WriteString(l.Pods[i].Node)
		}
	}
	for n := range v.All() {
		key.WriteString("|")
		key.WriteString(n.Object.Annotations[units])
		for _, pod := range n.Pods {
			key.WriteByte(' ')
			key.WriteString(string(pod.UID))
			key.WriteString(pod.Spec.NodeName)
			key.WriteByte('=')
			key.WriteString(pod.Annotations[annotation])
			key.WriteString(pod.Annotations[asksForSeat])
			if pod.DeletionTimestamp != nil {
				key.WriteByte('-')
			}
		}
		for _, l := range n.Ledgers {
			ledger(l)
		}
	}
	for l := range v.Pools() {
		ledger(l)
	}
	for _, pod := range v.Nominated() {
		fmt.Fprintf(&key, "!%s%s%s", pod.UID, pod.Annotations[asksForSeat], pod.Status.NominatedNodeName)
	}
	views.Lock()
	defer views.Unlock()
	if view := views.byKey[key.String()]; view != nil {
		return view
	}
	if views.byKey == nil {
		views.byKey, views.numbers = map[string]*snapshot.View{}, map[*snapshot.View]uint64{}
	}
	views.byKey[key.String()] = v
	sum := sha256.Sum256([]byte(key.String()))
	views.numbers[v] = binary.LittleEndian.Uint64(sum[:])
	return v
}

// fits reports whether the pod fits on the node. All pods request the same, except seats that they ask for later, and each has a priority that
// the key of the view determines. The pod and the view may have different nominations of the pod.
func (s *Scope) fits(view *snapshot.View, pod *corev1.Pod, n int) bool {
	views.Lock()
	key := fitKey{view, pod.UID, pod.Annotations[asksForSeat] != "", pod.Status.NominatedNodeName, n}
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
	view      *snapshot.View
	pod       types.UID
	asks      bool // for a seat
	nominated string
	node      int
}

// viewNumber returns the number of the View, which is the same in each run, so that a search visits the same states.
func viewNumber(v *snapshot.View) uint64 {
	views.Lock()
	defer views.Unlock()
	return views.numbers[v]
}
