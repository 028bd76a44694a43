package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"outboard.dev/outboard/test/measure"
)

// reading is the state of the processes at one time. All figures have grown from 0 on.
type reading struct {
	at                          time.Time
	scheduled                   float64 // pods that kube-scheduler has placed
	failed                      float64 // attempts that did not place a pod
	hinted                      float64 // pods placed with the result of the pod before
	allocated                   float64 // bytes that kube-scheduler has allocated
	filter, attempts, algorithm durations
	// Processor time, that of the machine for all programs, and self that of this one.
	scheduler, extender, apiserver, etcd, self, machine time.Duration
}

// read returns the state of all processes.
func (p *playing) read(ctx context.Context) (r reading, err error) {
	metrics, err := measure.Scrape(ctx, p.scheduler.Client(), p.scheduler.URL()+"/metrics")
	if err != nil {
		return r, fmt.Errorf("kube-scheduler's metrics: %w", err)
	}
	if r, err = p.readOthers(); err != nil {
		return r, err
	}
	const attempts = "scheduler_schedule_attempts_total"
	r.scheduled = metrics.Sum(attempts, "result", "scheduled")
	r.failed = metrics.Sum(attempts, "", "") - r.scheduled
	r.hinted = metrics.Sum("scheduler_batch_attempts_total", "result", "hint_used")
	r.allocated = metrics.Sum("go_memstats_alloc_bytes_total", "", "")
	r.filter = durationsOf(metrics, "scheduler_framework_extension_point_duration_seconds", "extension_point", "Filter")
	r.attempts = durationsOf(metrics, "scheduler_scheduling_attempt_duration_seconds", "result", "scheduled")
	r.algorithm = durationsOf(metrics, "scheduler_scheduling_algorithm_duration_seconds", "", "")
	r.scheduler, err = measure.ProcessorTime(p.scheduler.PID())
	return r, err
}

// readOthers returns the state of all processes but kube-scheduler, and what is 0 before that starts.
func (p *playing) readOthers() (r reading, err error) {
	r.at = time.Now()
	var errs []error
	used := func(pid int) time.Duration {
		t, err := measure.ProcessorTime(pid)
		errs = append(errs, err)
		return t
	}
	r.apiserver, r.etcd = used(p.cluster.APIServer().PID()), used(p.cluster.Etcd().PID())
	if p.extender != nil {
		r.extender = used(p.extender.PID())
	}
	r.self = used(os.Getpid())
	r.machine, err = machineTime()
	return r, errors.Join(append(errs, err)...)
}

// machineTime is how long all processors together have worked for any program.
func machineTime() (time.Duration, error) {
	const path, tick = "/proc/stat", 10 * time.Millisecond // see proc_stat(5); USER_HZ is 100
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var user, nice, system, idle, wait, irq, softIRQ int64
	if _, err := fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &softIRQ); err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return time.Duration(user+nice+system+irq+softIRQ) * tick, nil
}
