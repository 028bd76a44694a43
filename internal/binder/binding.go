package binder

import (
	"errors"

	"k8s.io/apimachinery/pkg/types"
)

// Binding is the binding of a pod to a node. All fields except ResourceVersion and Annotations are required.
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
	// ErrPodChanged means that a Binding was rejected because the pod has another resourceVersion than the Binding.
	ErrPodChanged = errors.New("the pod has changed")
	// ErrOutcomeUnknown means that the pod may or may not be bound to the node, now or later.
	ErrOutcomeUnknown = errors.New("it is not known whether the pod was bound")
)
