package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"outboard.dev/outboard/snapshot"
)

// The resource in the API server.
var (
	GroupVersion = schema.GroupVersion{Group: "outboard.dev", Version: "v1alpha1"}
	Resource     = GroupVersion.WithResource("ledgers")
	Kind         = GroupVersion.WithKind("Ledger")
)

// Object is a Ledger in the API server. An older replica drops a field that it does not know when
// it writes, so the absence of a new field must mean what older replicas do.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              snapshot.Ledger `json:"spec"`
	// Summary is for people: the sums over all units.
	Summary Summary `json:"summary"`
}

// Summary is what kubectl get shows. It counts allocations only, and not pods without allocations
// that another tool has bound or whose ledger was deleted.
type Summary struct {
	Capacity int64 `json:"capacity"`
	// Used is the sum of all allocations.
	Used int64 `json:"used"`
	// Free is the sum of what is unallocated of each unit; an overcommitted unit counts 0.
	Free int64 `json:"free"`
}

// ObjectList is a list of Ledgers.
type ObjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Object `json:"items"`
}

// Name returns the name of the object for the key. It is readable, and different for different
// keys.
func Name(key snapshot.LedgerKey) string {
	readable := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '.', r == '-':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, key.Resource)
	if key.Node != "" {
		readable = key.Node + "." + readable
	}
	// Each part between dots must begin and end with a letter or digit.
	parts := strings.Split(readable, ".")
	parts = slices.DeleteFunc(parts, func(part string) bool { return strings.Trim(part, "-") == "" })
	for i := range parts {
		parts[i] = strings.Trim(parts[i], "-")
	}
	if len(parts) == 0 {
		parts = []string{"ledger"}
	}
	sum := sha256.Sum256([]byte(key.Resource + "\x00" + key.Node))
	suffix := "-" + hex.EncodeToString(sum[:5])
	readable = strings.Join(parts, ".")
	readable = strings.TrimRight(readable[:min(len(readable), 253-len(suffix))], ".-")
	return readable + suffix
}

// newObject returns an empty ledger that does not exist in the API server yet.
func newObject(key snapshot.LedgerKey) *Object {
	return &Object{
		TypeMeta:   metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: Kind.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: Name(key)},
		Spec:       snapshot.Ledger{Resource: key.Resource, Node: key.Node},
	}
}

// summarize sets the Summary.
func (o *Object) summarize() {
	o.Summary = Summary{}
	for i := range o.Spec.Units {
		u := &o.Spec.Units[i]
		o.Summary.Capacity += u.Capacity
		o.Summary.Used += u.Used()
		o.Summary.Free += max(0, u.Capacity-u.Used())
	}
}

func (o *Object) DeepCopyObject() runtime.Object {
	next := *o
	o.ObjectMeta.DeepCopyInto(&next.ObjectMeta)
	next.Spec = clone(o.Spec)
	return &next
}

func (l *ObjectList) DeepCopyObject() runtime.Object {
	next := *l
	l.ListMeta.DeepCopyInto(&next.ListMeta)
	next.Items = make([]Object, len(l.Items))
	for i := range l.Items {
		next.Items[i] = *l.Items[i].DeepCopyObject().(*Object)
	}
	return &next
}

// clone returns a copy of the ledger that shares only immutable memory with l: annotations are only
// replaced.
func clone(l snapshot.Ledger) snapshot.Ledger {
	l.Units = slices.Clone(l.Units)
	for i := range l.Units {
		l.Units[i].Allocations = slices.Clone(l.Units[i].Allocations)
	}
	l.Pods = slices.Clone(l.Pods)
	for i := range l.Pods {
		l.Pods[i].Annotations = maps.Clone(l.Pods[i].Annotations)
	}
	return l
}

// AddToScheme makes clients with the scheme encode and decode ledgers and their lists.
func AddToScheme(s *runtime.Scheme) {
	s.AddKnownTypeWithName(Kind, &Object{})
	s.AddKnownTypeWithName(GroupVersion.WithKind("LedgerList"), &ObjectList{})
	metav1.AddToGroupVersion(s, GroupVersion)
}
