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
	if m := l.Mix(); math.Abs(m.Seen()-1000) > forgetEvery {
		t.Errorf("remembers %v", m.Seen())
	}
	for range 1000 {
		l.Arrive(late)
	}
	m := l.Mix()
	// After as many as are remembered, the old are down to about 1/e.
	if part := m.weights[old] / m.seen; math.Abs(part-1/math.E) > 0.03 {
		t.Errorf("%.3f of what is remembered is old", part)
	}
	for range 20000 {
		l.Arrive(late)
	}
	if now := l.Mix(); len(now.weights) != 1 {
		t.Errorf("what does not come any more is still there: %v", now.weights)
	}
	if len(m.weights) != 2 {
		t.Error("a Mix has changed")
	}
}

// Pods of which no two are alike must not fill the memory.
func TestLearnerIsBounded(t *testing.T) {
	l := NewLearner(1)
	for i := range int64(12000) {
		l.Arrive(Shape{CPU: i})
	}
	if n := len(l.Mix().weights); n > 5000 {
		t.Errorf("%d shapes are kept", n)
	}
}

func TestLearnerRemembersMoreInLargerClusters(t *testing.T) {
	l := NewLearner(5000)
	for range 10000 {
		l.Arrive(Shape{})
	}
	if seen := l.Mix().Seen(); math.Abs(seen-4000) > forgetEvery {
		t.Errorf("remembers %v", seen)
	}
}

func TestDue(t *testing.T) {
	l := NewLearner(10)
	var at []int
	for i := 1; i <= 3000; i++ {
		if l.Arrive(Shape{}); l.Due() {
			l.Mix()
			at = append(at, i)
		}
	}
	if len(at) < 3 || at[0] != 16 || at[1] != 32 || at[2] != 48 {
		t.Errorf("the first lessons are after %v", at[:min(3, len(at))])
	}
	if last := at[len(at)-1] - at[len(at)-2]; last < 250 || last > 267 {
		t.Errorf("the last two lessons are %d apart", last)
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
