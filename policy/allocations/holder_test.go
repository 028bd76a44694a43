package allocations_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy/allocations"
)

func TestList(t *testing.T) {
	end := &metav1.Time{Time: time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)}
	holder := func(name string) allocations.Holder {
		return allocations.HolderOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}})
	}
	ending := allocations.HolderOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e", DeletionTimestamp: end}})
	var many []allocations.Held
	for i := range 10 {
		many = append(many, allocations.Held{Holder: holder(fmt.Sprint(9 - i)), Amount: 1})
	}
	for _, tt := range []struct {
		name string
		held []allocations.Held
		want string
	}{
		{"nobody", nil, ""},
		{"most first", []allocations.Held{{holder("c"), 1}, {holder("b"), 4}, {holder("a"), 1}}, "ns/b (4), ns/a (1), ns/c (1)"},
		{"one each", []allocations.Held{{holder("b"), 1}, {holder("a"), 1}}, "ns/a, ns/b"},
		{"many", many, "ns/0, ns/1, ns/2, ns/3, ns/4, ns/5, ns/6, ns/7, and 2 more"},
		{"terminating", []allocations.Held{{ending, 9}, {holder("a"), 2}}, "ns/e (9, terminating until 2026-03-01T12:00:30Z), ns/a (2)"},
		{"terminating, one each", []allocations.Held{{ending, 1}}, "ns/e (terminating until 2026-03-01T12:00:30Z)"},
		{"known by its allocation alone", []allocations.Held{{allocations.Holder{UID: "6f1d"}, 4}}, "pod 6f1d (4)"},
	} {
		if got := allocations.List(tt.held); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
