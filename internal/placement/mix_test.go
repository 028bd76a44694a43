package placement

import (
	"math"
	"testing"
)

func TestLearnerForgets(t *testing.T) {
	l := NewLearner(10)
	old, late := Shape{GPUs: 1, Share: 100}, Shape{GPUs: 1, Share: 500}
	for range 2000 {
		l.Arrive(old)
	}
	if m := l.Mix(); math.Abs(m.seen-1000) > forgetEvery {
		t.Errorf("the number of pods is %v", m.seen)
	}
	for range 1000 {
		l.Arrive(late)
	}
	m := l.Mix()
	// After as many pods as the mix covers, the weight of the old ones is about 1/e.
	if part := m.weights[old] / m.seen; math.Abs(part-1/math.E) > 0.03 {
		t.Errorf("the weight of old pods is %.3f", part)
	}
	for range 20000 {
		l.Arrive(late)
	}
	if now := l.Mix(); len(now.weights) != 1 {
		t.Errorf("shapes without new pods are still present: %v", now.weights)
	}
	if len(m.weights) != 2 {
		t.Error("a Mix has changed")
	}
}

// Pods with different shapes must not fill the memory.
func TestLearnerIsBounded(t *testing.T) {
	l := NewLearner(1)
	for i := range int64(12000) {
		l.Arrive(Shape{CPU: i})
	}
	if n := len(l.Mix().weights); n > 5000 {
		t.Errorf("the mix keeps %d shapes", n)
	}
}

func TestLearnerRemembersMoreInLargerClusters(t *testing.T) {
	l := NewLearner(5000)
	for range 10000 {
		l.Arrive(Shape{})
	}
	if seen := l.Mix().seen; math.Abs(seen-4000) > forgetEvery {
		t.Errorf("the number of pods is %v", seen)
	}
}

func TestModelPods(t *testing.T) {
	var at []int
	for came := range 3001 {
		next, now := NextModelPods(came, 10), ModelPods(came, 10)
		if n := len(at); n == 0 || at[n-1] != next {
			at = append(at, next)
		}
		// The next model is known in advance, and is recent.
		if now > next || came-now > 16+250+100+came/5 || came > 200 && now == next && came-next < 10 {
			t.Fatalf("after %d pods: the model learns from %d pods, and the next one from %d", came, now, next)
		}
	}
	if len(at) < 12 || at[0] != 0 || at[1] != 16 || at[2] != 32 {
		t.Errorf("the first models learn from %v pods", at[:min(3, len(at))])
	}
	if last := at[len(at)-1] - at[len(at)-2]; last != 250 {
		t.Errorf("the last two models are %d pods apart", last)
	}
	if far := NextModelPods(1<<40, 5000); 1<<40-far > 1000 || far > 1<<40 {
		t.Errorf("after %d: %d", 1<<40, far)
	}
	if NextModelPods(-5, 0) != 0 || ModelPods(0, 0) != 0 {
		t.Error("a model without pods")
	}
}

func TestTurnover(t *testing.T) {
	s, other := Shape{GPUs: 2, Share: 500}, Shape{CPU: 1}
	l := NewLearner(10)
	turnover := func() float64 { return NewWaste(l.Mix(), []Kind{{"T4", 2, Whole}}).turnover }
	if got := turnover(); got != 0 {
		t.Errorf("with nothing: %v", got)
	}
	for range 4 {
		l.Arrive(s)
		l.Arrive(other)
	}
	l.Depart(s)
	l.Depart(other) // has no GPUs: does not count
	if got := turnover(); got != 0.25 {
		t.Errorf("1 of 4: %v", got)
	}
	for range 9 {
		l.Depart(s)
	}
	if got := turnover(); got != 1 {
		t.Errorf("10 of 4: %v", got)
	}
}
