package assumption

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var now = time.Unix(1e9, 0)

func podOn(node string) *corev1.Pod { return &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}} }

func endedOn(node string) *corev1.Pod {
	pod := podOn(node)
	pod.Status.Phase = corev1.PodSucceeded
	return pod
}

// Each step is followed by what is assumed then.
func TestStates(t *testing.T) {
	first, second := podOn(""), podOn("")
	assume := func(pod *corev1.Pod, node string, watched *corev1.Pod) step {
		return func(a State) (State, Effect) { return a.Assume(pod, node, watched) }
	}
	begin := func(a State) (State, Effect) { return a.Begin(), Unchanged }
	respond := func(number int, bound, watched *corev1.Pod) step {
		return func(a State) (State, Effect) { return a.Respond(number, bound, watched, now) }
	}
	finish := func(a State) (State, Effect) { return a.Finish(now) }
	forget := func(a State) (State, Effect) { return a.Forget() }
	watch := func(pod *corev1.Pod) step { return func(a State) (State, Effect) { return a.Watch(pod) } }
	confirm := func(assumed func(State) *corev1.Pod, truth *corev1.Pod) step {
		return func(a State) (State, Effect) { return a.Confirm(assumed(a), truth, now) }
	}
	current := func(a State) *corev1.Pod { return a.Pod }
	former := func(State) *corev1.Pod { return second }
	decided, onA := assume(first, "a", nil), then{AsAssumed, "a", false}
	boundOn := func(node string) then { return then{AsAssumed, node, true} }
	for name, steps := range map[string][]any{
		"another call for the same node":      {decided, onA, assume(second, "a", nil), then{Unchanged, "a", false}, forget, then{Unchanged, "a", false}, forget, then{AsWatched, "", false}},
		"another call for another node":       {decided, onA, assume(second, "b", nil), then{AsAssumed, "b", false}},
		"a call for a bound pod":              {decided, onA, finish, boundOn("a"), assume(second, "b", nil), then{Unchanged, "a", true}},
		"a call for a pod that is shown":      {assume(first, "a", podOn("b")), then{Unchanged, "", false}},
		"a call for a pod that has ended":     {assume(first, "a", endedOn("b")), onA},
		"finished twice":                      {decided, onA, finish, boundOn("a"), finish, then{Unchanged, "a", true}},
		"finished without a decision":         {finish, then{}},
		"a bound pod stays":                   {decided, onA, finish, boundOn("a"), forget, then{Unchanged, "a", true}},
		"bound, and shown elsewhere":          {begin, then{}, respond(1, podOn("a"), podOn("b")), then{}},
		"bound, and ended":                    {begin, then{}, respond(1, endedOn("a"), nil), then{}},
		"not bound":                           {begin, then{}, respond(1, nil, nil), then{}},
		"forgotten during a request":          {decided, onA, begin, then{Unchanged, "a", false}, forget, then{AsWatched, "", false}, respond(1, podOn("a"), nil), boundOn("a")},
		"a request after another":             {begin, then{}, watch(nil), then{AsWatched, "", false}, respond(1, podOn("a"), nil), then{}, begin, then{}, respond(1, podOn("a"), nil), boundOn("a")},
		"responses in another order":          {begin, then{}, begin, then{}, respond(2, podOn("b"), nil), boundOn("b"), respond(1, podOn("a"), nil), then{Unchanged, "b", true}},
		"a response from before it was shown": {begin, then{}, watch(podOn("b")), then{AsWatched, "", false}, respond(1, podOn("a"), nil), then{}},
		"shown as it was before":              {decided, onA, watch(podOn("")), then{Unchanged, "a", false}},
		"shown, and not decided":              {watch(podOn("")), then{AsWatched, "", false}},
		"gone":                                {decided, onA, watch(nil), then{AsWatched, "", false}, forget, then{AsWatched, "", false}},
		"confirmed on another node":           {decided, onA, finish, boundOn("a"), confirm(current, podOn("b")), boundOn("b")},
		"confirmed too late":                  {decided, onA, finish, boundOn("a"), confirm(former, nil), then{Unchanged, "a", true}},
		"not confirmed":                       {decided, onA, finish, boundOn("a"), forget, then{Unchanged, "a", true}, confirm(current, podOn("")), then{AsWatched, "", false}},
		"gone, and a response from before": {
			begin, then{}, decided, onA, finish, boundOn("a"), confirm(current, nil), then{AsWatched, "", false}, respond(1, podOn("a"), nil), then{},
		},
		"ended, and a response from before": {
			begin, then{}, decided, onA, finish, boundOn("a"), confirm(current, endedOn("a")), then{AsWatched, "", false}, respond(1, podOn("a"), nil), then{},
		},
		"not bound yet, and a response": {
			begin, then{}, decided, onA, finish, boundOn("a"), confirm(current, podOn("")), then{AsWatched, "", false}, respond(1, podOn("a"), nil), boundOn("a"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			var a State
			for i := 0; i < len(steps); i += 2 {
				var f step
				switch s := steps[i].(type) {
				case step:
					f = s
				case func(State) (State, Effect):
					f = s
				}
				next, e := f(a)
				if got := (then{e, next.Node, next.Bound}); got != steps[i+1] || (next.Pod == nil) != (next.Node == "") || a.Pod == first && e == Unchanged && next.Pod != first {
					t.Fatalf("after step %d: %+v with pod %v, want %+v", i/2+1, got, next.Pod, steps[i+1])
				}
				a = next
			}
		})
	}
}

func TestNothingEndsTwice(t *testing.T) {
	for name, twice := range map[string]func(){
		"Assume":  func() { State{}.Forget() },
		"request": func() { State{}.Respond(1, nil, nil, now) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("does not panic")
				}
			}()
			twice()
		})
	}
}

type step func(State) (State, Effect)

// then is what is assumed after a step.
type then struct {
	effect Effect
	node   string
	bound  bool
}
