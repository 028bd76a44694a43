package explain

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/whatif"
	"outboard.dev/outboard/snapshot"
)

// maxEvaluation bounds how long the policies and the search for remedies may take for one request.
const maxEvaluation = 2 * time.Second

// question is what an evaluation is about, except the pod itself.
type question struct {
	node  string // "": all
	nodes int
}

// evaluation is what the engines say about a pod in one View.
type evaluation struct {
	pod      *corev1.Pod
	engines  map[string]*engine.Engine
	now      []Profile
	fits     *Fits
	remedies []whatif.Remedy
}

// evaluator evaluates one pod at a time, because each may take as long as many calls of
// kube-scheduler.
type evaluator struct {
	source Source
	turn   chan struct{} // capacity 1
}

func newEvaluator(s Source) *evaluator {
	return &evaluator{source: s, turn: make(chan struct{}, 1)}
}

// add adds to the document what the engines say about the pod now, and what is known of it without
// them. The error is that of ctx.
func (v *evaluator) add(ctx context.Context, doc *Document, pod *corev1.Pod, q question) error {
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if pod.Spec.NodeName == "" {
		limited, cancel := context.WithTimeoutCause(ctx, maxEvaluation, fmt.Errorf("not complete after %s", maxEvaluation))
		defer cancel()
		e := evaluation{pod: pod, engines: v.source.Engines()}
		view := v.source.View(pod.UID)
		v.source.now(limited, &e, view, q)
		v.source.remedies(limited, &e, view)
		doc.Now, doc.Fits, doc.Remedies = e.now, e.fits, e.remedies
		doc.Hints = v.source.Hints()(pod)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	doc.Change = doc.change()
	return nil
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
