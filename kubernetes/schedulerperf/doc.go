// Package schedulerperf runs the workloads of kube-scheduler's own benchmark, scheduler_perf, with
// kube-scheduler alone and with Outboard, as an extender and as a plugin. Kubernetes runs them to
// find what makes kube-scheduler slower or lose a pod. Here they say that each workload ends as it
// does without Outboard, and what Outboard costs:
//
//	make scheduler-perf                    # each workload in its smallest size
//	make scheduler-perf BENCH=-large       # some in larger sizes
//
// A workload fails if its pods are not scheduled in time, or if it leaves goroutines behind. The
// table in the end has the processor time of the API server, kube-scheduler, the benchmark and
// Outboard, without etcd, from the first node to the last pod, of the extender from its start to
// its end, and the pods per second of workloads that take more than a second.
package schedulerperf
