package nodes_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/source/nodes"
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/snapshot"
)

const key = "example.com/price"

var limits = signal.Limits{Values: 100, Bytes: 1 << 20}

func view(nodes ...*corev1.Node) func() *snapshot.View {
	var b snapshot.Builder
	for _, n := range nodes {
		b.SetNode(n)
	}
	return b.View
}

func labelled(name, value string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{key: value}}}
}

func read(t *testing.T, s *nodes.Source) map[string]float64 {
	t.Helper()
	samples, err := s.Read(t.Context(), limits)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, sample := range samples {
		if !sample.At.IsZero() {
			t.Errorf("the sample of %s is from %v: the view has no time", sample.Key, sample.At)
		}
		got[sample.Key] = sample.Number
	}
	return got
}

func TestNumbers(t *testing.T) {
	for text, want := range map[string]any{
		"0.75": 0.75, "-2": -2.0, "1e3": 1000.0, "007": 7.0, " 5 ": 5.0,
		"500m": 0.5, "2Ki": 2048.0, "3G": 3e9, "1E3": 1000.0,
		"": nil, "-": nil, "cheap": nil, "1,5": nil, "5%": nil, "NaN": nil, "Infinity": nil, "1e400": nil,
		strings.Repeat("9", 1000): nil, "1_000": nil, "5 m": nil,
	} {
		want, ok := want.(float64)
		all := map[string]float64{"known": 1}
		if ok {
			all["asked"] = want
		}
		node := labelled("asked", text)
		node.Annotations = map[string]string{key: text}
		known := labelled("known", "1")
		known.Annotations = known.Labels
		for _, c := range []nodes.Config{{Label: key}, {Annotation: key}} {
			if diff := cmp.Diff(all, read(t, nodes.New(c, view(node, known, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}})))); diff != "" {
				t.Errorf("%q in %+v: -want +got\n%s", text, c, diff)
			}
		}
	}
}

func TestConditions(t *testing.T) {
	var all []*corev1.Node
	for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown, "", "Perhaps"} {
		all = append(all, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "is-" + string(status)},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: "GPUHot", Status: status},
			}},
		})
	}
	want := map[string]float64{"is-True": 1, "is-False": 0}
	if diff := cmp.Diff(want, read(t, nodes.New(nodes.Config{Condition: "GPUHot"}, view(all...)))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestNothingButGarbage: a wrong key yields no samples, but a key that never has a number is an
// error.
func TestNothingButGarbage(t *testing.T) {
	_, err := nodes.New(nodes.Config{Label: key}, view(labelled("a", "cheap"), labelled("b", "dear"))).Read(t.Context(), limits)
	if want := `none of the 2 node(s) with the label example.com/price has a number there: a has "cheap"`; err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
	if got := read(t, nodes.New(nodes.Config{Label: "other"}, view(labelled("a", "cheap")))); len(got) > 0 {
		t.Errorf("read %v of nodes without the label", got)
	}
}

func TestLimit(t *testing.T) {
	var all []*corev1.Node
	for i := range 101 {
		all = append(all, labelled(fmt.Sprint("n", i), "1"))
	}
	if _, err := nodes.New(nodes.Config{Label: key}, view(all...)).Read(t.Context(), limits); !errors.Is(err, signal.ErrTooMany) {
		t.Errorf("101 values of at most 100: the error is %v", err)
	}
	if _, err := nodes.New(nodes.Config{Label: key}, view(all[1:]...)).Read(t.Context(), limits); err != nil {
		t.Errorf("100 values of at most 100: %v", err)
	}
}

// TestFollowsTheView: each reading is of the current view.
func TestFollowsTheView(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(labelled("a", "1"))
	s := nodes.New(nodes.Config{Label: key}, b.View)
	read(t, s)
	b.SetNode(labelled("a", "2"))
	if got := read(t, s)["a"]; got != 2 {
		t.Errorf("read %v after the node changed, want 2", got)
	}
}

func BenchmarkRead(b *testing.B) {
	var all []*corev1.Node
	for i := range 5000 {
		all = append(all, labelled(fmt.Sprint("n", i), fmt.Sprint(i, "m")))
	}
	s := nodes.New(nodes.Config{Label: key}, view(all...))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Read(b.Context(), signal.Limits{Values: 5000}); err != nil {
			b.Fatal(err)
		}
	}
}
