package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/measure"
)

// play measures an arm once: it starts the extender, creates the pods, starts kube-scheduler, and reads how far it is until the pods
// are placed or the time is up.
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
	config, err := a.schedulerConfig(s, o.qps, url, admin)
	if err != nil {
		return r, err
	}
	if p.outboardURL != nil {
		if config, err = p.outboardURL(config); err != nil {
			return r, err
		}
	}
	start, err := p.readOthers()
	if err != nil {
		return r, err
	}
	if p.scheduler, err = c.StartScheduler(ctx, controlplane.SchedulerOptions{Config: config, Path: o.program(a)}); err != nil {
		return r, err
	}
	first, last, err := p.follow(ctx, round, start)
	if err != nil {
		return r, fmt.Errorf("%w\n%s", err, tail(p.scheduler.Log()))
	}
	r = newResult(s, a, round, first, last)
	if a.candidates > 0 && !a.idealPlugin {
		m, err := measure.Scrape(ctx, http.DefaultClient, "http://"+admin+"/metrics")
		if err != nil {
			return r, fmt.Errorf("the plugin's metrics: %w", err)
		}
		const attempts = "outboard_candidates_attempts_total"
		r.Eligible = m.Sum(attempts, "outcome", "named") / m.Sum(attempts, "", "")
	}
	return r, c.spread(ctx, &r)
}

// program is the kube-scheduler of the arm; "": the unmodified one.
func (o *options) program(a arm) string {
	switch {
	case a.idealPlugin:
		return o.idealScheduler
	case a.plugin:
		return o.scheduler
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
	admin     string  // Outboard's admin address; "" without Outboard
	// outboardURL completes kube-scheduler's configuration; nil without Outboard.
	outboardURL func(config string) (string, error)
	profiling   *profiling
}

// stop ends the processes, so that they cost the next arm nothing.
func (p *playing) stop() error {
	var errs []error
	errs = append(errs, p.profiling.wait())
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
		config, err := p.arm.outboardConfig(p.setting, p.profiles != "")
		if err != nil {
			return "", err
		}
		o, err := p.cluster.StartOutboard(ctx, config)
		if err != nil {
			return "", err
		}
		p.extender, p.admin, p.outboardURL = o.Process, o.Admin, o.SchedulerConfig
		return o.URL, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	other, err := measure.StartServer(ctx, self, serveArgument, string(p.arm.extender), strconv.Itoa(p.arm.shortlist))
	if err != nil {
		return "", err
	}
	p.extender = other
	return other.URL, nil
}

// follow reads the state of the processes until all pods are placed or the time is up, and returns the readings between which
// kube-scheduler was busy: the first one after the warm-up, or start without a warm-up, and the last one before the last pod was placed.
func (p *playing) follow(ctx context.Context, round int, start reading) (first, last reading, err error) {
	if p.warmUp == 0 {
		first = start
		p.profiling = p.startProfiles(ctx, round)
	}
	tick := time.NewTicker(p.interval)
	defer tick.Stop()
	deadline := time.Now().Add(p.limit)
	for total := float64(p.setting.pods); ; {
		now, err := p.read(ctx)
		if err != nil {
			return first, last, err
		}
		switch {
		case first.at.IsZero() && (now.scheduled >= p.warmUp*total || now.scheduled > 0 && now.at.After(deadline.Add(-p.limit/2))):
			first = now
			p.profiling = p.startProfiles(ctx, round)
		case now.scheduled < total || last.at.IsZero():
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
		case <-tick.C:
		}
	}
	if first.at.IsZero() || last.scheduled <= first.scheduled {
		return first, last, fmt.Errorf("kube-scheduler has placed %.0f of %d pods, too few to measure within %s: change -pods or -limit",
			last.scheduled, p.setting.pods, p.limit)
	}
	// kube-scheduler binds in the background, and may have chosen all nodes during the warm-up.
	if chosen := last.algorithm.Since(&first.algorithm); chosen.Count() == 0 {
		return first, last, fmt.Errorf("kube-scheduler has chosen the nodes of all %d pods before it bound %.0f of them, too few to measure: change -pods", p.setting.pods, first.scheduled)
	}
	return first, last, nil
}

// tail is the end of a log.
func tail(log string) string { return log[max(0, len(log)-4<<10):] }
