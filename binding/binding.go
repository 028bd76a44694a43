// Package binding is what a scheduler extender and a cluster agree on about binding a pod: what is written, and the two errors
// after which it matters what became of it.
package binding

import (
	"errors"

	"k8s.io/apimachinery/pkg/types"
)

// Binding says which pod goes to which node. All fields but ResourceVersion and Annotations are required.
type Binding struct {
	Namespace, Name string
	UID             types.UID
	Node            string
	// ResourceVersion, if not "", is the only version of the pod to bind.
	ResourceVersion string
	// Annotations are merged into the pod's in the same transaction that sets its nodeName.
	Annotations map[string]string
}

var (
	// ErrPodChanged says that a Binding was refused because the pod has another resourceVersion than the Binding names.
	ErrPodChanged = errors.New("the pod has changed")
	// ErrOutcomeUnknown says that the pod may or may not be, or become, bound to the node.
	ErrOutcomeUnknown = errors.New("it is not known whether the pod was bound")
)
