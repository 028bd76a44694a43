package main

import (
	"sync"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// recorder keeps the requests that an extender gets.
type recorder struct {
	mu      sync.Mutex
	filter  []extenderv1.ExtenderArgs
	preempt []extenderv1.ExtenderPreemptionArgs
	bind    []extenderv1.ExtenderBindingArgs
}

func (r *recorder) extender() *extender {
	return &extender{
		filter: func(args *extenderv1.ExtenderArgs, _ *extenderv1.ExtenderFilterResult) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.filter = append(r.filter, *args)
		},
		preempt: func(args *extenderv1.ExtenderPreemptionArgs, _ map[string]*extenderv1.MetaVictims) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.preempt = append(r.preempt, *args)
		},
		bind: func(args *extenderv1.ExtenderBindingArgs, _ *extenderv1.ExtenderBindingResult) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.bind = append(r.bind, *args)
		},
	}
}
