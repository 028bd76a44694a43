package cluster

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// The state has of a large pod only what decisions about other pods read (snapshot.ReducePod). What that is changes with the configuration
// and with disruption budgets: then the Cluster reads again the pods that may lack something.

// reads is what decisions read of other pods.
type reads struct {
	policies, versions uint64 // of the policies, and the last one of selected labels
	keys               map[string]struct{}
	resources          map[corev1.ResourceName]struct{}
	selected           map[string]selected // by namespace
}

// selected are the labels that the disruption budgets of a namespace select.
type selected struct {
	keys    map[string]struct{} // only replaced
	version uint64              // changes when there are more keys
}

// readsOfLocked is readsOf for callers that hold the lock.
func (s *state) readsOfLocked(namespace string) snapshot.Reads {
	r := &s.reads
	keys, resources := r.keys, r.resources // they are only replaced
	of := r.selected[namespace]
	if labels := s.builder.SelectedLabels(namespace); len(labels) == 0 {
		of = selected{}
		delete(r.selected, namespace)
	} else {
		if !covers(of.keys, labels) {
			r.versions++
			of.version = r.versions
		}
		of.keys = labels
		if r.selected == nil {
			r.selected = map[string]selected{}
		}
		r.selected[namespace] = of
	}
	return snapshot.Reads{
		Policies: r.policies, Selectors: of.version,
		Key: func(key string) bool {
			_, read := keys[key]
			_, selects := of.keys[key]
			return read || selects
		},
		Resource: func(name corev1.ResourceName) bool {
			_, read := resources[name]
			return read
		},
	}
}

// covers reports whether the set has all keys of the other one.
func covers(set, other map[string]struct{}) bool {
	for key := range other {
		if _, has := set[key]; !has {
			return false
		}
	}
	return true
}

// readsOf returns what is read of the pods of a namespace now.
func (s *state) readsOf(namespace string) snapshot.Reads {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readsOfLocked(namespace)
}

// KeepOfPods sets which labels and annotations of pods on nodes the policies read, and for which extended resources.
func (c *Cluster) KeepOfPods(keys []string, resources []corev1.ResourceName) {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	r := &c.state.reads
	if missing(r.keys, keys) || missing(r.resources, resources) {
		r.policies++
		c.state.requestReread()
	}
	r.keys, r.resources = setOf(keys), setOf(resources)
}

func missing[K comparable](set map[K]struct{}, keys []K) bool {
	return slices.ContainsFunc(keys, func(key K) bool { _, has := set[key]; return !has })
}

func setOf[K comparable](keys []K) map[K]struct{} {
	set := make(map[K]struct{}, len(keys))
	for _, key := range keys {
		set[key] = struct{}{}
	}
	return set
}

func (s *state) requestReread() {
	select {
	case s.lacking <- struct{}{}:
	default:
	}
}

// mayLack returns the pods on nodes, or nominated to one, that may lack what is read of them now.
func (s *state) mayLack() []*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pods []*corev1.Pod
	for _, pod := range s.allPods() {
		if snapshot.IsReduced(pod) && (pod.Spec.NodeName != "" || pod.Status.NominatedNodeName != "") && s.readsOfLocked(pod.Namespace).MayLack(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// rereadPause is the time between two attempts to read pods again.
const rereadPause = time.Second

// reread reads pods from the API server that may lack what is read of them now.
func (c *Cluster) reread(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.state.lacking:
		}
		for _, known := range c.state.mayLack() {
			pod, err := c.lookup(ctx, known.Namespace, known.Name, known.UID)
			if err != nil {
				c.state.requestReread()
				break // the API server is unreachable
			}
			if pod != nil {
				snapshot.ReducePod(pod, c.state.readsOf)
				c.state.replaceVersion(pod)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(rereadPause):
		}
	}
}

// replaceVersion replaces the version of the pod that the watch has shown last. If the watch will show another version, that one has all that
// is read.
func (s *state) replaceVersion(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.seen(pod.UID); known != nil && known.ResourceVersion == pod.ResourceVersion {
		s.setPodLocked(pod)
	}
}
