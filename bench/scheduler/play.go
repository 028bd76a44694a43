package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/bench/trials"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/measure"
)

// play measures an arm once: it starts the extender, creates the pods, starts kube-scheduler, and reads how far it is until the pods
// are placed or the time is up. kube-scheduler waits for its lease until it has read all nodes and pods, so that what is measured has
// all of each attempt, also if it chooses nodes faster than it binds pods, and nothing else.
func (o *options) play(ctx context.Context, c *cluster, s setting, a arm, round int) (r result, err error) {
	p := &playing{options: o, cluster: c, setting: s, arm: a}
	defer func() { err = errors.Join(err, p.stop(), c.clear(ctx)) }()
	url, err := p.startExtender(ctx)
	if err != nil {
		return r, err
	}
	if err := c.createPods(ctx, s.pods, func(i int) *corev1.Pod { return newPod(i, s.templates, s.kind) }); err != nil {
		return r, err
	}
	admin, err := c.HoldAddress() // of the plugin
	if err != nil {
		return r, err
	}
	config, err := a.schedulerConfig(s, url, admin)
	if err != nil {
		return r, err
	}
	if p.outboardURL != nil {
		if config, err = p.outboardURL(config); err != nil {
			return r, err
		}
	}
	if err := c.holdLease(ctx); err != nil {
		return r, err
	}
	if p.scheduler, err = c.StartScheduler(ctx, controlplane.SchedulerOptions{Config: config + waits, Path: a.program()}); err != nil {
		return r, err
	}
	if err := c.releaseLease(ctx); err != nil {
		return r, err
	}
	first, last, err := p.follow(ctx)
	if err != nil {
		return r, fmt.Errorf("%w\n%s", err, tail(p.scheduler.Log()))
	}
	r = newResult(s, a, round, first, last)
	if a.plugin && a.shortlist > 0 && !a.idealPlugin {
		m, err := measure.Scrape(ctx, http.DefaultClient, "http://"+admin+"/metrics")
		if err != nil {
			return r, fmt.Errorf("the plugin's metrics: %w", err)
		}
		const attempts = "outboard_shortlist_attempts_total"
		r.Eligible = m.Sum(attempts, "outcome", "named") / m.Sum(attempts, "", "")
	}
	return r, c.spread(ctx, &r)
}

// program is the kube-scheduler of the arm; "": the unmodified one.
func (a arm) program() string {
	switch {
	case a.idealPlugin:
		return filepath.Join("kubernetes", "bin", "ideal-scheduler")
	case a.plugin:
		return filepath.Join("kubernetes", "bin", "kube-scheduler-outboard")
	}
	return ""
}

// process is an extender that is running.
type process interface {
	PID() int
	Stop() error
}

// playing is an arm that is being measured.
type playing struct {
	*options
	cluster   *cluster
	setting   setting
	arm       arm
	scheduler *controlplane.Scheduler
	extender  process // nil without an extender
	// outboardURL completes kube-scheduler's configuration; nil without Outboard.
	outboardURL func(config string) (string, error)
}

// stop ends the processes, so that they cost the next arm nothing.
func (p *playing) stop() error {
	var errs []error
	if p.scheduler != nil {
		errs = append(errs, p.scheduler.Stop())
	}
	if p.extender != nil {
		errs = append(errs, p.extender.Stop())
	}
	return errors.Join(errs...)
}

// startExtender starts the arm's extender and returns its URL when it is ready.
func (p *playing) startExtender(ctx context.Context) (url string, err error) {
	switch p.arm.extender {
	case none:
		return "", nil
	case outboard:
		config, err := p.arm.outboardConfig(p.setting)
		if err != nil {
			return "", err
		}
		o, err := p.cluster.StartOutboard(ctx, config)
		if err != nil {
			return "", err
		}
		p.extender, p.outboardURL = o.Process, o.SchedulerConfig
		return o.URL, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	other, err := trials.StartServer(ctx, self, serveArgument, string(p.arm.extender), strconv.Itoa(p.arm.shortlist))
	if err != nil {
		return "", err
	}
	p.extender = other
	return other.URL, nil
}

const (
	// startLimit is how long kube-scheduler may take to get its lease and begin the first attempt.
	startLimit = 30 * time.Second
	// idleInterval is the time between two readings until then.
	idleInterval = 20 * time.Millisecond
)

// follow reads the state of the processes until all pods are placed or the time is up, and returns the readings between which
// kube-scheduler was busy: the last one before the first attempt, and the last one before the last pod was placed.
func (p *playing) follow(ctx context.Context) (first, last reading, err error) {
	deadline := time.Now().Add(startLimit)
	for total := float64(p.setting.pods); ; {
		now, err := p.read(ctx)
		if err != nil {
			return first, last, err
		}
		wait := p.interval
		switch {
		case now.algorithm.Count() == 0:
			first, wait = now, min(wait, idleInterval)
		case last.at.IsZero():
			last, deadline = now, first.at.Add(p.limit)
		case now.scheduled < total:
			last = now
		}
		if now.scheduled >= total || now.at.After(deadline) {
			break
		}
		select {
		case <-ctx.Done():
			return first, last, context.Cause(ctx)
		case <-p.scheduler.Done():
			return first, last, errors.New("kube-scheduler ended")
		case <-time.After(wait):
		}
	}
	if last.scheduled == 0 {
		return first, last, fmt.Errorf("kube-scheduler has placed none of %d pods within %s, too few to measure: change -limit", p.setting.pods, p.limit)
	}
	return first, last, nil
}

// tail is the end of a log.
func tail(log string) string { return log[max(0, len(log)-4<<10):] }
