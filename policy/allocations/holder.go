package allocations

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// maxHeld is how many pods a text from [List] names.
const maxHeld = 8

// Holder identifies a pod. Namespace and Name are "" if only its allocation is known.
type Holder struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// TerminatingUntil is when the grace period of the pod ends, if it is terminating; nil
	// otherwise.
	TerminatingUntil *metav1.Time `json:"terminatingUntil,omitempty"`
}

// HolderOf returns the Holder that is the pod.
func HolderOf(pod *corev1.Pod) Holder {
	return Holder{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, TerminatingUntil: pod.DeletionTimestamp}
}

// name returns the namespace and the name of the pod, or its UID if these are unknown.
func (h *Holder) name() string {
	if h.Name == "" {
		return "pod " + string(h.UID)
	}
	return h.Namespace + "/" + h.Name
}

// Held is what one pod holds of one unit, or of several together.
type Held struct {
	Holder
	Amount int64
}

// String returns the pod, the amount and when the pod ends: "ml/train (40, terminating until
// 2026-01-01T12:00:30Z)".
func (h Held) String() string { return h.text(true) }

func (h *Held) text(amount bool) string {
	until := ""
	if h.TerminatingUntil != nil {
		until = "terminating until " + h.TerminatingUntil.UTC().Format(time.RFC3339)
	}
	switch {
	case amount && until != "":
		return fmt.Sprintf("%s (%d, %s)", h.name(), h.Amount, until)
	case amount:
		return fmt.Sprintf("%s (%d)", h.name(), h.Amount)
	case until != "":
		return fmt.Sprintf("%s (%s)", h.name(), until)
	}
	return h.name()
}

// Sum returns the sum of the amounts.
func Sum(held []Held) (sum int64) {
	for i := range held {
		sum = snapshot.AddAmounts(sum, held[i].Amount)
	}
	return sum
}

// List returns the pods for an explanation: "ml/train (40), ml/eval (4), and 3 more". The pods that
// hold most come first, and of equal ones the first by name. If all hold 1, the text has no
// amounts.
func List(held []Held) string {
	sorted := slices.SortedFunc(slices.Values(held), func(a, b Held) int {
		return cmp.Or(cmp.Compare(b.Amount, a.Amount), cmp.Compare(a.name(), b.name()))
	})
	amounts := slices.ContainsFunc(sorted, func(h Held) bool { return h.Amount != 1 })
	texts := make([]string, len(sorted))
	for i := range sorted {
		texts[i] = sorted[i].text(amounts)
	}
	return policy.Join(texts, maxHeld)
}
