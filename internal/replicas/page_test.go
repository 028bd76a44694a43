package replicas_test

import (
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboard.dev/outboard/internal/pending"
	"outboard.dev/outboard/internal/replicas"
	"outboard.dev/outboard/internal/ui"
)

// Replicas that do not respond have their name and the error, without the URL of the port-forward.
func TestOverview(t *testing.T) {
	gpus, seats := ui.Resource{Resource: "gpu", Title: "GPU memory"}, ui.Resource{Resource: "licenses", Title: "Licenses"}
	got := replicas.Overview([]replicas.Response[*ui.Overview]{
		{Replica: "a", Value: &ui.Overview{Replicas: []ui.Replica{{Name: "host-a", Nodes: 3}}, Resources: []ui.Resource{seats, gpus}}},
		{Replica: "b", Err: &url.Error{Op: "Get", URL: "http://b", Err: errors.New("connection refused")}},
		{Replica: "c", Value: &ui.Overview{Replicas: []ui.Replica{{Name: "host-c", Nodes: 4}}, Resources: []ui.Resource{gpus}}},
	}, "prod")
	want := &ui.Overview{
		Context: "prod", Replicas: []ui.Replica{{Name: "a", Nodes: 3}, {Name: "b", Error: "connection refused"}, {Name: "c", Nodes: 4}}, Resources: []ui.Resource{gpus, seats},
		Profiles: []ui.Profile{}, Over: "in the last 0 s", Example: got.Example,
		Troubles: []ui.Trouble{{Text: "Replica b does not respond (connection refused): what only it knows is not shown.", Incomplete: true}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := replicas.Overview(nil, ""); got.Resources == nil {
		t.Error("no resources are null in JSON")
	}
}

// Of a pod that several replicas rejected, the row counts of the one that was asked last.
func TestWaiting(t *testing.T) {
	row := func(pod, reason string, since, called, requeues int) ui.WaitingRow {
		r := ui.WaitingRow{Owner: "ns/Job/j", Pods: 1, Pod: pod, Reason: reason, Since: noon.Add(time.Duration(since) * time.Minute), Requeues: requeues}
		if called > 0 {
			r.LastCall = noon.Add(time.Duration(called) * time.Minute)
		}
		return r
	}
	all := func(rows ...ui.WaitingRow) (r replicas.Response[[]*ui.WaitingRow]) {
		for i := range rows {
			r.Value = append(r.Value, &rows[i])
		}
		return r
	}
	for name, tt := range map[string]struct {
		a, b replicas.Response[[]*ui.WaitingRow]
		want []ui.WaitingRow
	}{
		"one knows it":           {all(row("ns/p", "X", 1, 5, 2)), all(), []ui.WaitingRow{row("ns/p", "X", 1, 5, 2)}},
		"one was not asked":      {all(row("ns/p", pending.Other, 0, 0, 0)), all(row("ns/p", "X", 1, 5, 2)), []ui.WaitingRow{row("ns/p", "X", 1, 5, 2)}},
		"the other was not":      {all(row("ns/p", "X", 1, 5, 2)), all(row("ns/p", pending.Other, 0, 0, 0)), []ui.WaitingRow{row("ns/p", "X", 1, 5, 2)}},
		"both, the second later": {all(row("ns/p", "X", 3, 5, 2)), all(row("ns/p", "Y", 1, 6, 1)), []ui.WaitingRow{row("ns/p", "Y", 1, 6, 3)}},
		"both, the first later":  {all(row("ns/p", "X", 1, 7, 2)), all(row("ns/p", "Y", 3, 6, 1)), []ui.WaitingRow{row("ns/p", "X", 1, 7, 3)}},
		"different pods":         {all(row("ns/p", "X", 3, 5, 0)), all(row("ns/q", "Y", 1, 6, 0)), []ui.WaitingRow{row("ns/q", "Y", 1, 6, 0), row("ns/p", "X", 3, 5, 0)}},
	} {
		got := replicas.Waiting([]replicas.Response[[]*ui.WaitingRow]{tt.a, tt.b}, ui.Query{Owner: "ns/Job/j", Limit: 9})
		for i := range tt.want {
			tt.want[i].Title = tt.want[i].Reason
		}
		if diff := cmp.Diff(tt.want, got.Rows); diff != "" || got.Pods != len(tt.want) {
			t.Errorf("%s: %d pods (-want +got):\n%s", name, got.Pods, diff)
		}
	}
}

// The replica that is asked for what all know is ready, if one is.
func TestReady(t *testing.T) {
	all := []replicas.Replica{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
	o := &ui.Overview{Replicas: []ui.Replica{
		{Name: "a", Error: "refused"}, {Name: "b", Checks: []ui.Check{{Name: "cluster", Error: "not read"}}}, {Name: "c", Checks: []ui.Check{{Name: "cluster"}}},
	}}
	for want, o := range map[string]*ui.Overview{"abcd": nil, "cbda": o} {
		got := ""
		for _, r := range replicas.Ready(all, o) {
			got += r.Name
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
