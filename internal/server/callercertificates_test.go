package server_test

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/server"
)

// The metric has the expiry of the certificate with which an allowed caller connected last, and
// nothing of refused callers.
func TestExpiryOfCallersCertificates(t *testing.T) {
	p := newPKI(t)
	r := start(t, server.Options{TLS: p.options("scheduler", "other"), Handler: echo})
	now := time.Now().Truncate(time.Second)
	call := func(name string, expires time.Time, status int) {
		t.Helper()
		certificate := p.issue(t, p.clientCA, certs.Request{CommonName: name, Client: true, NotAfter: expires})
		mustPost(t, newClient(t, p.config(certificate)), "https://"+r.addr, "x", status)
	}
	call("scheduler", now.Add(time.Hour), 200)
	call("other", now.Add(3*time.Hour), 200)
	call("stranger", now.Add(time.Hour), 403)
	want := map[string]float64{"scheduler": float64(now.Add(time.Hour).Unix()), "other": float64(now.Add(3 * time.Hour).Unix())}
	if got := expiries(t, r.registry); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	call("scheduler", now.Add(2*time.Hour), 200) // renewed
	want["scheduler"] = float64(now.Add(2 * time.Hour).Unix())
	if got := expiries(t, r.registry); !maps.Equal(got, want) {
		t.Errorf("after the renewal: %v, want %v", got, want)
	}
}

// Of many callers, the metric has those that connected last, and of any only those of the last day.
func TestCallersInTheMetricAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saw, metrics := server.NewCallerCertificates()
		registry := prometheus.NewRegistry()
		registry.MustRegister(metrics)
		for i := range 100 {
			saw(fmt.Sprint(i), time.Now())
			time.Sleep(time.Second)
		}
		if got := expiries(t, registry); len(got) != 32 || got["99"] == 0 || got["68"] == 0 {
			t.Errorf("%v", got)
		}
		time.Sleep(24*time.Hour - 10*time.Second)
		saw("99", time.Now())
		if got := expiries(t, registry); len(got) != 10 {
			t.Errorf("after a day: %v", got)
		}
	})
}

// expiries returns the expiries in the metric, by caller.
func expiries(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "outboard_server_caller_certificate_expiry_timestamp_seconds" {
			for _, m := range family.GetMetric() {
				of[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	return of
}
