package ui_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/requeue"
	"outboard.dev/outboard/internal/ui"
)

// Of several profiles that rejected a pod, the one counts that kube-scheduler asked last.
func TestWaitingOfSeveralProfiles(t *testing.T) {
	for name, later := range map[string]string{"the first": "/", "the second": "/devices"} {
		w := newWorld(t)
		w.pod("p", "", 1, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests["example.com/fpga"] = p.Spec.Containers[0].Resources.Requests[memory]
		})
		s := w.source()
		s.Rejected = func(profile string, _ types.UID) (requeue.Status, bool) {
			called := noon
			if profile == later {
				called = noon.Add(time.Second)
			}
			return requeue.Status{Since: noon.Add(-time.Minute), LastCall: called, Requeues: 2, Nodes: 1, Rejection: decision.Rejection{Policy: profile, Code: "Full"}}, true
		}
		rows := decode[ui.Waiting](t, get(t, ui.Handlers(s), ui.WaitingPath)).Rows
		if len(rows) != 1 || rows[0].Reason != later+".Full" || rows[0].Requeues != 4 || !rows[0].Since.Equal(noon.Add(-time.Minute)) {
			t.Errorf("%s: %+v", name, rows)
		}
	}
}
