package app

import (
	"strings"
	"testing"

	"outboard.dev/outboard/internal/ui"
)

// A reason for which no pod waits may have a typing error, so the message has those for which pods wait.
func TestNothingWaits(t *testing.T) {
	pods := []*ui.WaitingRow{{Pod: "a/1", Owner: "a/Pod/1", Reason: "PodLimit.TooManyPods"}, {Pod: "a/2", Owner: "a/Pod/2", Reason: "GPUMemory.InsufficientMemory"}}
	for _, tt := range []struct {
		pods  []*ui.WaitingRow
		query ui.Query
		want  string
	}{
		{nil, ui.Query{Reason: "x"}, "No pod waits.\n"},
		{pods, ui.Query{Namespace: "b"}, "None of the waiting pods is selected (pods that wait: 2): --all-namespaces selects those of all namespaces.\n"},
		{pods, ui.Query{Namespace: "b", Reason: "PodLimit.TooManyPods"}, "None of the waiting pods is selected (pods that wait: 2): --all-namespaces selects those of all namespaces.\n"},
		{pods, ui.Query{Reason: "InsufficientMemory"}, "No pod waits for the reason InsufficientMemory: the reasons for which pods wait are GPUMemory.InsufficientMemory, PodLimit.TooManyPods.\n"},
	} {
		var out strings.Builder
		waiting := ui.Group(tt.pods, tt.query)
		nothingWaits(&out, &waiting, tt.query.Reason)
		if out.String() != tt.want {
			t.Errorf("%v: got %q, want %q", tt.query, out.String(), tt.want)
		}
	}
}
