// Package schedulerperf runs the workloads of kube-scheduler's own benchmark, scheduler_perf, with kube-scheduler alone and with Outboard,
// as an extender and as a plugin. Kubernetes runs them to find what makes kube-scheduler slower or lose a pod. Here they say that each
// workload ends as it does without Outboard, and what Outboard costs:
//
//	make scheduler-perf                        # each workload in its smallest size
//	make bench-scheduler-perf                  # some in larger sizes
//
// A workload fails if its pods are not scheduled in time, or if it leaves goroutines behind.
package schedulerperf
