package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/whatif"
	"outboard.dev/outboard/snapshot"
)

const (
	// maxEvaluation bounds how long the policies and the search for remedies may take for one
	// request.
	maxEvaluation = 2 * time.Second
	// maxKept is how many evaluations are kept, and maxKeptNodes about how many nodes each may be.
	maxKept      = 64
	maxKeptNodes = 256
)

// question is what an evaluation is about, except the pod itself.
type question struct {
	node  string // "": all
	nodes int
}

// evaluation is what the engines say about a pod in one View. It is shared.
type evaluation struct {
	pod      *corev1.Pod
	view     weak.Pointer[snapshot.View]
	engines  map[string]*engine.Engine
	now      []Profile
	fits     *Fits
	remedies []whatif.Remedy
}

// isOf reports whether an evaluation of this pod would have the same result.
func (e *evaluation) isOf(pod *corev1.Pod, view *snapshot.View, engines map[string]*engine.Engine) bool {
	same := e.pod == pod || pod.ResourceVersion != "" && e.pod.UID == pod.UID && e.pod.ResourceVersion == pod.ResourceVersion
	return same && e.view == weak.Make(view) && maps.Equal(e.engines, engines)
}

// evaluator evaluates one pod at a time, because each may take as long as many calls of
// kube-scheduler, and keeps what it found until the View, the pod or the engines change.
type evaluator struct {
	source Source
	turn   chan struct{} // capacity 1

	mu   sync.Mutex
	kept map[keptKey]*evaluation // nil: nothing is kept
}

type keptKey struct {
	pod string // namespace/name
	question
}

func newEvaluator(s Source) *evaluator {
	return &evaluator{source: s, turn: make(chan struct{}, 1), kept: map[keptKey]*evaluation{}}
}

// evaluate returns the evaluation of the pod in the present View. The error is that of ctx.
func (v *evaluator) evaluate(ctx context.Context, engines map[string]*engine.Engine, pod *corev1.Pod, q question) (*evaluation, error) {
	key := keptKey{pod.Namespace + "/" + pod.Name, q}
	view := v.source.View(pod.UID)
	if e := v.find(key); e != nil && e.isOf(pod, view, engines) {
		return e, nil
	}
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	view = v.source.View(pod.UID)
	if e := v.find(key); e != nil && e.isOf(pod, view, engines) { // somebody else has asked in the meantime
		return e, nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, maxEvaluation, fmt.Errorf("not complete after %s", maxEvaluation))
	defer cancel()
	e := &evaluation{pod: pod, view: weak.Make(view), engines: engines}
	if pod.Spec.NodeName == "" {
		v.source.now(limited, e, view, q)
		v.source.remedies(limited, e, view)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	count := 0
	for i := range e.now {
		count += len(e.now[i].Explanations)
	}
	if limited.Err() == nil && count <= maxKeptNodes {
		v.keep(key, e)
	}
	return e, nil
}

// add adds to the document what the engines say about the pod now, and what is known of it without
// them. The error is that of ctx.
func (v *evaluator) add(ctx context.Context, doc *Document, pod *corev1.Pod, q question) error {
	e, err := v.evaluate(ctx, v.source.Engines(), pod, q)
	if err != nil {
		return err
	}
	doc.Now, doc.Fits, doc.Remedies = e.now, e.fits, e.remedies
	if pod.Spec.NodeName == "" {
		doc.Hints = v.source.Hints()(pod)
	}
	doc.Change = doc.change()
	return nil
}

func (v *evaluator) find(key keptKey) *evaluation {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.kept[key]
}

func (v *evaluator) keep(key keptKey, e *evaluation) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kept == nil {
		return
	}
	if len(v.kept) >= maxKept {
		clear(v.kept)
	}
	v.kept[key] = e
}

// remedies adds to the evaluation what would make the waiting pod fit.
func (s Source) remedies(ctx context.Context, e *evaluation, view *snapshot.View) {
	c := whatif.Cluster{View: view}
	c.Ignored, _ = s.ignored(e.pod)
	if e.fits != nil && e.fits.Fit == 0 && !slices.ContainsFunc(e.now, func(p Profile) bool { return p.Error != "" }) {
		var err error
		if c.Engine, err = engineOf(deciding(e.now), e.engines); err == nil {
			e.remedies, err = whatif.Find(ctx, c, e.pod)
		}
		if err != nil {
			e.now[0].Error = "searching for changes with which the pod would fit: " + err.Error()
		}
	}
}
