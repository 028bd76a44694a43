package snapshot_test

import (
	"math"
	"testing"
	"time"

	"outboard.dev/outboard/snapshot"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func signal(name string, numbers map[string]float64) *snapshot.Signal {
	values := map[string]snapshot.Value{}
	for key, number := range numbers {
		values[key] = snapshot.Value{Number: number, At: noon}
	}
	return snapshot.NewSignal(name, values)
}

// A signal has the same value for a node in a view, a node changed by preemption, and a node that only the request has.
func TestSignalFollowsNodes(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(node("b"))
	b.SetSignal(signal("cpu", map[string]float64{"a": 1, "b": 2, "elsewhere": 3}))
	before := b.View()
	b.DeleteNode("b")
	b.SetNode(node("a"))
	b.SetNode(node("c"))
	b.SetPod(pod("p", "a"))
	view := b.View()
	cpu := view.Signal("cpu")
	a := view.Node("a")
	for name, tt := range map[string]struct {
		got  snapshot.Value
		want float64
	}{
		"in the view":          {cpu.Of(a), 1},
		"with another pod":     {cpu.Of(a.With(pod("q", "a"))), 1},
		"by key":               {cpu.Get("elsewhere"), 3},
		"a stranger":           {cpu.Of(snapshot.NewNode(node("elsewhere"))), 3},
		"in the earlier view":  {before.Signal("cpu").Of(before.Node("b")), 2},
		"of no node any more":  {cpu.Get("b"), 2},
		"by no source":         {view.Signal("memory").Of(a), 0},
		"about an unseen node": {cpu.Of(view.Node("c")), 0},
	} {
		if tt.got.Number != tt.want || tt.got.Current() != (tt.want != 0) {
			t.Errorf("%s: %+v, want %g", name, tt.got, tt.want)
		}
	}
}

func TestSignalsArePublished(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(node("a"))
	first := b.View()
	b.SetSignal(signal("cpu", map[string]float64{"a": 1}))
	second := b.View()
	if first == second || first.Signal("cpu") != nil || second.Node("a") != first.Node("a") {
		t.Error("a new signal is not a new view of the same nodes")
	}
	b.SetPod(pod("p", "a"))
	if third := b.View(); third.Signal("cpu") != second.Signal("cpu") {
		t.Error("an unchanged signal is not shared")
	}
	b.DeleteSignal("cpu")
	if b.View().Signal("cpu") != nil {
		t.Error("the view still has a deleted signal")
	}
	if v := b.View(); b.View() != v {
		t.Error("got a new view, although nothing has changed")
	}
}

func TestSignalHoldsNumbersOnly(t *testing.T) {
	c := signal("x", map[string]float64{"nan": math.NaN(), "inf": math.Inf(1), "minus": math.Inf(-1), "one": 1})
	if c.Len() != 1 || c.Get("one").Number != 1 {
		t.Errorf("got %d values", c.Len())
	}
	var none *snapshot.Signal
	if none.Len() != 0 || none.Name() != "" || none.Get("").Current() || none.Of(snapshot.NewNode(node("a"))).Current() {
		t.Error("a nil signal is not empty")
	}
	for range none.All() {
		t.Error("a nil signal has a value")
	}
}
