package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// lookEvery is the time between two checks.
const lookEvery = time.Second

// await waits until the condition is met. It fails if kube-scheduler or Outboard ends.
func (p *play) await(ctx context.Context, isSo func(context.Context) (bool, error)) error {
	for {
		if so, err := isSo(ctx); so || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.scheduler.Done():
			return fmt.Errorf("kube-scheduler ended: %s", p.scheduler.Log())
		case <-p.outboard.Done():
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
	before, empty, inVain := -1, false, 0
	return func(ctx context.Context) (bool, error) {
		onNodes, _ := p.tally.progress()
		m, err := p.schedulerMetrics(ctx)
		if err != nil {
			return false, err
		}
		unbound, attempts := len(p.pods)-onNodes, m.attempts().unschedulable
		emptyBefore := empty
		empty = m.queues() == queues{unschedulable: unbound}
		if onNodes != before {
			before, inVain = onNodes, attempts
			return false, nil
		}
		return empty && emptyBefore || attempts-inVain > 2*unbound, nil
	}
}

// queues returns how many pods are in each of kube-scheduler's queues.
type queues struct{ active, backoff, gated, unschedulable int }

func (m metrics) queues() queues {
	in := func(queue string) int { return m.value(`scheduler_pending_pods{queue="` + queue + `"}`) }
	return queues{in("active"), in("backoff"), in("gated"), in("unschedulable")}
}

// attempts is how often kube-scheduler tried to schedule a pod, by what came of it.
type attempts struct{ scheduled, unschedulable, failed int }

func (m metrics) attempts() attempts {
	of := func(result string) int {
		return m.value(`scheduler_schedule_attempts_total{profile="default-scheduler",result="` + result + `"}`)
	}
	return attempts{of("scheduled"), of("unschedulable"), of("error")}
}

// metrics are lines of an exposition by their series.
type metrics map[string]string

// value is 0 for a series that is not there: kube-scheduler has had nothing to count.
func (m metrics) value(series string) int {
	v, err := strconv.ParseFloat(m[series], 64)
	if err != nil {
		return 0
	}
	return int(v)
}

func (p *play) schedulerMetrics(ctx context.Context) (metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.scheduler.URL()+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.scheduler.Client().Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	m := metrics{}
	for line := range strings.Lines(string(text)) {
		if series, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(line, "#") {
			m[series] = value
		}
	}
	if m[`scheduler_pending_pods{queue="active"}`] == "" {
		return nil, fmt.Errorf("kube-scheduler does not say how many pods are in its queues: %s", resp.Status)
	}
	return m, nil
}
