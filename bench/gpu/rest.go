package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"outboard.dev/outboard/test/measure"
)

// lookEvery is the time between two checks.
const lookEvery = time.Second

// await waits until the condition is met. It fails if kube-scheduler or Outboard ends.
func (p *play) await(ctx context.Context, isSo func(context.Context) (bool, error)) error {
	var outboardEnds <-chan struct{}
	if p.outboard != nil {
		outboardEnds = p.outboard.Done()
	}
	for {
		if so, err := isSo(ctx); so || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.scheduler.Done():
			return fmt.Errorf("kube-scheduler ended: %s", p.scheduler.Log())
		case <-outboardEnds:
			return fmt.Errorf("outboard ended: %s", p.outboard.Log())
		case <-time.After(lookEvery):
		}
	}
}

// tried reports whether every pod is bound or was rejected at least once.
func (p *play) tried(context.Context) (bool, error) {
	_, untried := p.tally.progress()
	return untried == 0, nil
}

// atRest reports whether every pod is bound, or was rejected after the last one was bound. Then the state is final, because
// pods do not end.
//
// Whenever a pod is bound, kube-scheduler moves the pods that an extender has rejected from the pool of unschedulable
// pods to its queues. So when its queues are empty, and all pods that are not bound are in that pool, kube-scheduler has
// tried each of them with the current cluster. The state can look like this for a moment before kube-scheduler sees a
// Binding, so atRest requires it twice, with the same pods bound. But kube-scheduler also moves pods that are in
// the pool for five minutes, and on a slow machine that may happen before it has tried the last one. It tries pods in
// turn, so atRest is also true when twice as many attempts have failed as pods are not bound.
func (p *play) atRest() func(context.Context) (bool, error) {
	before, empty, inVain := -1, false, 0.0
	return func(ctx context.Context) (bool, error) {
		onNodes, _ := p.tally.progress()
		m, err := p.schedulerMetrics(ctx)
		if err != nil {
			return false, err
		}
		unbound, attempts := float64(len(p.pods)-onNodes), attemptsOf(m).unschedulable
		emptyBefore := empty
		// The queues are active, backoff, gated and unschedulable.
		empty = m.Sum(pendingPods, "", "") == unbound && m.Sum(pendingPods, "queue", "unschedulable") == unbound
		if onNodes != before {
			before, inVain = onNodes, attempts
			return false, nil
		}
		return empty && emptyBefore || attempts-inVain > 2*unbound, nil
	}
}

// attempts is how often kube-scheduler tried to schedule a pod, by what came of it.
type attempts struct{ scheduled, unschedulable, failed float64 }

func attemptsOf(m measure.Metrics) attempts {
	of := func(result string) float64 { return m.Sum("scheduler_schedule_attempts_total", "result", result) }
	return attempts{of("scheduled"), of("unschedulable"), of("error")}
}

// pendingPods is the metric of how many pods are in each of kube-scheduler's queues.
const pendingPods = "scheduler_pending_pods"

func (p *play) schedulerMetrics(ctx context.Context) (measure.Metrics, error) {
	m, err := measure.Scrape(ctx, p.scheduler.Client(), p.scheduler.URL()+"/metrics")
	if err == nil && m[pendingPods] == nil {
		err = errors.New("kube-scheduler does not say how many pods are in its queues")
	}
	return m, err
}
