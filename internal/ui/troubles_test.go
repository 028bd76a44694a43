package ui_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/lastevent"
	"outboard.dev/outboard/internal/ui"
)

func texts(o *ui.Overview) (all []string) {
	for _, t := range o.Troubles {
		all = append(all, strings.TrimSpace(t.Text+" "+t.Remedy))
	}
	return all
}

// A trouble says which replica has it, and one that all replicas have is said once.
func TestTroubles(t *testing.T) {
	up := func(name, configuration string, change ...func(*ui.Replica)) ui.Replica {
		r := ui.Replica{Name: name, Now: noon, Configuration: configuration, Checks: []ui.Check{{Name: "cluster"}}}
		for _, f := range change {
			f(&r)
		}
		return r
	}
	certificate := func(use, subject string, days int) func(*ui.Replica) {
		return func(r *ui.Replica) {
			r.Certificates = append(r.Certificates, ui.Certificate{Use: use, Subject: subject, NotAfter: noon.AddDate(0, 0, days), Renewal: noon.AddDate(0, 0, days-14)})
		}
	}
	warns := func(r *ui.Replica) { r.Warnings = []string{"the disk is slow"} }
	for name, tt := range map[string]struct {
		replicas []ui.Replica
		want     []string
		differ   string // names of replicas
	}{
		"none":           {[]ui.Replica{up("a", "1"), up("b", "1")}, nil, ""},
		"a warning":      {[]ui.Replica{up("a", "1", warns)}, []string{"the disk is slow"}, ""},
		"of one of two":  {[]ui.Replica{up("a", "1"), up("b", "1", warns)}, []string{"Replica b: the disk is slow"}, ""},
		"not responding": {[]ui.Replica{{Name: "a", Error: "refused"}, up("b", "1", warns)}, []string{"Replica a does not respond (refused): what only it knows is not shown.", "the disk is slow"}, ""},
		"not ready": {[]ui.Replica{up("a", "1", func(r *ui.Replica) { r.Checks[0].Error = "pods are not read" })},
			[]string{"Replica a is not ready: cluster: pods are not read."}, ""},
		"certificates": {[]ui.Replica{up("a", "1", certificate("serving", "", 15), certificate("client CA", "", 13), certificate("caller", "batch", 1), certificate("caller", "old", -1))},
			[]string{"the certificate client CA ends in 13 days.", "the certificate caller batch ends in 24 hours.", "the certificate caller old ended at 2026-04-30T12:00:00Z."}, ""},
		"an ended certificate": {[]ui.Replica{up("a", "1", certificate("serving", "", -1), func(r *ui.Replica) {
			r.Unserved = []ui.Unserved{{Reason: "rejected_by_client", Calls: 1, Last: noon, Example: "x"}}
		})}, []string{"the certificate serving ended at 2026-04-30T12:00:00Z.", "Clients such as x do not accept Outboard's certificate: 1 call so far. Renew Outboard's certificate, which has ended."}, ""},
		"two configurations": {[]ui.Replica{up("a", "2"), up("b", "1"), up("c", "1"), {Name: "d", Error: "refused"}},
			[]string{"Replica d does not respond (refused): what only it knows is not shown.", "The replicas have different configurations: see Health."}, "a"},
	} {
		o := ui.Overview{Replicas: tt.replicas}
		o.Judge()
		if got := texts(&o); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		differ := ""
		for _, r := range o.Replicas {
			if r.Differs {
				differ += r.Name
			}
		}
		if differ != tt.differ {
			t.Errorf("%s: the configurations of %q differ, want %q", name, differ, tt.differ)
		}
	}
}

// Calls that no profile serves are a trouble for some minutes, with an example and what to do.
func TestUnservedCallsAreTroubles(t *testing.T) {
	w := newWorld(t)
	w.now = time.Now()
	handlers := ui.Handlers(w.source())
	unserved := callmetrics.NewUnserved(w.registry)
	reasons := func(name string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name}, []string{"reason"})
		w.registry.MustRegister(c)
		return c
	}
	handshakes, refused := reasons("outboard_server_failed_handshakes_total"), reasons("outboard_server_refused_callers_total")
	lines := ui.Troubles(w.source())
	troubles := func() []string {
		t.Helper()
		o := decode[ui.Overview](t, get(t, handlers, ui.OverviewPath))
		if got := lines(); !slices.Equal(got, texts(&o)) {
			t.Errorf("/readyz has %q", got)
		}
		w.now = w.now.Add(2 * time.Second) // otherwise, /readyz may have the same again
		return texts(&o)
	}
	handshakes.WithLabelValues("other").Inc() // a port scan
	handshakes.WithLabelValues("plaintext")
	if got := troubles(); len(got) > 0 {
		t.Errorf("without such calls: %q", got)
	}
	unserved.Count("/outbord/prioritize")
	unserved.Count("/outbord/filter")
	lastevent.Count(handshakes.WithLabelValues("plaintext"), "10.0.0.7")
	lastevent.Count(handshakes.WithLabelValues("rejected_by_client"), "10.0.0.8")
	lastevent.Count(refused.WithLabelValues("name_not_allowed"), "kube-scheduler")
	want := []string{
		"Callers whose name is not allowed are refused, such as kube-scheduler: 1 call so far. Add the name to serving.tls.allowedClients.",
		"Nothing is served at the path of calls, such as /outbord/filter: 2 calls so far. Correct urlPrefix or the verb in kube-scheduler's configuration; outboard check --cluster finds what is wrong.",
		"Calls come without TLS, such as from 10.0.0.7: 1 call so far. Begin urlPrefix in kube-scheduler's configuration with https://.",
		"Clients such as 10.0.0.8 do not accept Outboard's certificate: 1 call so far. Set caFile in kube-scheduler's configuration to the CA of the certificate, and restart kube-scheduler, which reads it only when it starts.",
	}
	if got := troubles(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	reloads := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outboard_server_tls_reloads_total"}, []string{"outcome"})
	w.registry.MustRegister(reloads)
	reloads.WithLabelValues("error").Inc()
	lastevent.Count(reloads.WithLabelValues("success"), "new certificates")
	want = want[1:3] // the others were refused by the former ones
	if got := troubles(); !slices.Equal(got, want) {
		t.Errorf("after a reload: %q, want %q", got, want)
	}
	w.now = w.now.Add(9 * time.Minute)
	if got := troubles(); !slices.Equal(got, want) {
		t.Errorf("after 9 minutes: %q", got)
	}
	w.now = w.now.Add(2 * time.Minute)
	if got := troubles(); len(got) > 0 {
		t.Errorf("after 11 minutes: %q", got)
	}
}

// The calls of all replicas are one trouble, because a kube-scheduler may call any of them.
func TestUnservedCallsOfSeveralReplicas(t *testing.T) {
	o := ui.Overview{Replicas: []ui.Replica{
		{Name: "a", Now: noon, Unserved: []ui.Unserved{{Reason: "plaintext", Calls: 2, Last: noon.Add(-20 * time.Minute), Example: "10.0.0.1"}}},
		{Name: "b", Now: noon, Unserved: []ui.Unserved{{Reason: "plaintext", Calls: 3, Last: noon.Add(-time.Minute), Example: "10.0.0.2"}}},
		{Name: "c", Error: "refused"},
	}}
	o.Judge()
	last := o.Troubles[len(o.Troubles)-1]
	if want := "Calls come without TLS, such as from 10.0.0.2: 5 calls so far."; len(o.Troubles) != 2 || last.Text != want || !last.Last.Equal(noon.Add(-time.Minute)) {
		t.Errorf("%+v, want %s", o.Troubles, want)
	}
}
