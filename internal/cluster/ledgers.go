package cluster

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// ReleaseAnnotation is set on a pod before its allocation is released because the pod stayed
// unbound, the outcome of its Binding is unknown, or the allocation cannot be used any more; its
// value is the time. If a Binding arrived before, the pod has the annotation and keeps its
// allocation.
const ReleaseAnnotation = "outboard.dev/allocation-release-started"

// ledgerClient reads and writes Ledgers.
type ledgerClient = gentype.ClientWithList[*ledger.Object, *ledger.ObjectList]

func newLedgerClient(config *rest.Config) (*ledgerClient, error) {
	scheme := runtime.NewScheme()
	ledger.AddToScheme(scheme)
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &ledger.GroupVersion, "/apis"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return gentype.NewClientWithList(ledger.Resource.Resource, client, runtime.NewParameterCodec(scheme), "",
		func() *ledger.Object { return new(ledger.Object) }, func() *ledger.ObjectList { return new(ledger.ObjectList) }), nil
}

func (c *Cluster) ledgerFeed() *feed {
	return newFeed(c, schema.GroupVersionResource{Resource: ledger.Resource.Resource}, "", c.ledgerClient, store[*ledger.Object]{
		trim: func(o *ledger.Object) { o.ManagedFields = nil },
		set:  c.setLedger, remove: c.RemoveLedger,
	})
}

// setLedger handles a Ledger shown by the watch. One that somebody has made with another name than
// that of its key is as if it did not exist: Outboard writes no allocations to it, and it would
// take the place of the other one.
func (c *Cluster) setLedger(o *ledger.Object) {
	if name := ledger.Name(o.Spec.Key()); o.Name != name {
		c.warnings.Log(c.options.Logger, slog.LevelWarn, "ledger", "ignoring a ledger whose name is not that of its resource and node", "ledger", o.Name, "expected", name)
		c.RemoveLedger(o)
		return
	}
	c.SetLedger(o)
}

// GetLedger reads a Ledger from the API server.
func (c *Cluster) GetLedger(ctx context.Context, name string) (*ledger.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.LookupTimeout)
	defer cancel()
	o, err := c.ledgerClient.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	o.ManagedFields = nil
	return o, nil
}

// PutLedger creates the Ledger, or replaces the version with its resourceVersion.
func (c *Cluster) PutLedger(ctx context.Context, o *ledger.Object) (*ledger.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.BindTimeout)
	defer cancel()
	var written *ledger.Object
	var err error
	if o.ResourceVersion == "" {
		written, err = c.ledgerClient.Create(ctx, o, metav1.CreateOptions{})
	} else {
		written, err = c.ledgerClient.Update(ctx, o, metav1.UpdateOptions{})
	}
	if err = c.denials.observe(writeLedger, err); err != nil {
		return nil, err
	}
	written.ManagedFields = nil
	return written, nil
}

// DeleteLedger deletes exactly that version of the Ledger.
func (c *Cluster) DeleteLedger(ctx context.Context, o *ledger.Object) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.BindTimeout)
	defer cancel()
	return c.ledgerClient.Delete(ctx, o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion}})
}

// TouchPod changes the resourceVersion of the pod, by setting an annotation, and returns the
// changed pod; nil if it is gone. Views count the pod as after [Cluster.LivePod].
func (c *Cluster) TouchPod(ctx context.Context, namespace, name string, uid types.UID) (touched *corev1.Pod, err error) {
	number := c.BeginRequest(uid)
	defer func() { c.EndRequest(uid, number, touched, time.Now()) }()
	pod, err := c.stamp(ctx, namespace, name, ReleaseAnnotation, map[string]any{"uid": uid}, nil)
	if rejected(err) || apierrors.IsConflict(err) { // perhaps because there is another pod of that name
		if pod, lookupErr := c.lookup(ctx, namespace, name, uid); pod == nil {
			return nil, lookupErr
		}
	}
	if err != nil {
		return nil, err
	}
	trimPod(pod)
	return pod, nil
}

// Ledger returns the Ledger with the name in its latest known state, or nil.
func (s *State) Ledger(name string) *ledger.Object {
	s.lookups.RLock()
	defer s.lookups.RUnlock()
	return s.ledgers[name]
}

// Ledgers returns all Ledgers in their latest known state, in no particular order.
func (s *State) Ledgers() []*ledger.Object {
	s.lookups.RLock()
	defer s.lookups.RUnlock()
	return slices.Collect(maps.Values(s.ledgers))
}

// SetLedger handles a Ledger shown by the watch.
func (s *State) SetLedger(o *ledger.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var old []snapshot.LedgerPod
	if known := s.ledgers[o.Name]; known != nil {
		old = known.Spec.Pods
	}
	s.replaceAllocations(o.Name, old, o.Spec.Pods)
	s.lookups.Lock()
	s.ledgers[o.Name] = o
	s.lookups.Unlock()
	s.showLedger(o)
}

// RemoveLedger handles an event of the watch that a Ledger is gone. It reads only the name.
func (s *State) RemoveLedger(o *ledger.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.ledgers[o.Name]
	if known == nil {
		return
	}
	s.replaceAllocations(known.Name, known.Spec.Pods, nil)
	s.lookups.Lock()
	delete(s.ledgers, o.Name)
	s.lookups.Unlock()
	s.builder.DeleteLedger(known.Spec.Key())
	s.requestPublish()
}

// replaceAllocations replaces the pods of the ledger with the name in the index of allocations. A
// pod that is gone and loses its allocation may get another one, by a bind call that comes late.
// That one counts until a sweep releases it.
func (s *State) replaceAllocations(name string, old, pods []snapshot.LedgerPod) {
	this := func(other string) bool { return other == name }
	for i := range old {
		uid := old[i].UID
		s.allocations[uid] = slices.DeleteFunc(s.allocations[uid], this)
	}
	for i := range pods {
		s.allocations[pods[i].UID] = append(s.allocations[pods[i].UID], name)
	}
	for i := range old {
		uid := old[i].UID
		if gone, ok := s.gone[uid]; ok && !slices.Contains(s.allocations[uid], name) {
			s.gone[uid] = slices.DeleteFunc(gone, this)
		}
		if len(s.allocations[uid]) == 0 {
			delete(s.allocations, uid)
			delete(s.gone, uid)
		}
	}
}

// showLedger sets the ledger in the View, without the allocations of pods that the watch has shown
// to be gone. These allocations are in the Ledger for some seconds more, but a pod that needs the
// units is retried now.
func (s *State) showLedger(o *ledger.Object) {
	s.builder.SetLedger(o.Spec.Without(func(uid types.UID) bool { return slices.Contains(s.gone[uid], o.Name) }))
	s.requestPublish()
}

// allocationsEnd handles an event of the watch that a pod is gone, or, after a restore of etcd,
// exists again.
func (s *State) allocationsEnd(uid types.UID, gone bool) {
	if _, was := s.gone[uid]; was == gone {
		return
	}
	names := s.allocations[uid]
	if gone && len(names) > 0 {
		s.gone[uid] = slices.Clone(names)
	} else {
		delete(s.gone, uid)
	}
	for _, name := range names {
		s.showLedger(s.ledgers[name])
	}
}
