package ui

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/histogram"
	"outboard.dev/outboard/internal/lastevent"
)

// overview returns what one replica says about itself.
func (s *Source) overview(latest *atomic.Pointer[resources], waiting *roster, calls *lately, past *history) Overview {
	r := Replica{Name: s.Name, Now: s.Now(), Checks: s.Checks(), Warnings: s.Warnings(), Certificates: []Certificate{}, Profiles: s.profiles()}
	r.Generation = s.View().Generation()
	r.Nodes = s.View().Len()
	if s.CountPods != nil {
		r.Pods = s.CountPods()
	}
	r.Waiting = waiting.count()
	used := r.readAll(s.Metrics)
	slices.SortFunc(r.Certificates, func(a, b Certificate) int {
		return cmp.Or(cmp.Compare(b.Use, a.Use), cmp.Compare(a.Subject, b.Subject))
	})
	r.called(s.Log)
	past.add(&r, used)
	calls.subtract(&r)
	o := Overview{Replicas: []Replica{r}, Resources: s.resources(latest).all}
	o.Judge()
	return o
}

// readAll takes what the page shows from the metrics of the process, and returns how much is used
// of each resource.
func (r *Replica) readAll(metrics prometheus.Gatherer) map[string]*used {
	families, _ := metrics.Gather() // those without an error
	var reloaded time.Time          // when the certificates in use were loaded; zero at the start
	all := map[string]*used{}
	for _, f := range families {
		r.read(f, &reloaded, all)
	}
	r.Unserved = slices.DeleteFunc(r.Unserved, func(u Unserved) bool {
		return u.Last.Before(reloaded) && u.Reason != "path" && u.Reason != "plaintext"
	})
	return all
}

// use names certificates, by the label of their metric.
var use = map[string]string{"serving": serving, "client_ca": "client CA"}

// serving is the use of Outboard's own certificate.
const serving = "serving"

// read takes what the page shows from a metric of the process.
func (r *Replica) read(f *dto.MetricFamily, reloaded *time.Time, all map[string]*used) {
	for _, m := range f.GetMetric() {
		label := func(name string) string {
			for _, l := range m.GetLabel() {
				if l.GetName() == name {
					return l.GetValue()
				}
			}
			return ""
		}
		of := func() *used {
			resource := label("resource")
			if all[resource] == nil {
				all[resource] = &used{}
			}
			return all[resource]
		}
		seconds := func() time.Time { return time.Unix(int64(m.GetGauge().GetValue()), 0).UTC() }
		switch f.GetName() {
		case "outboard_build_info":
			r.Version = label("version")
		case "outboard_config_info":
			r.Configuration = label("digest")
		case "process_start_time_seconds":
			r.Started = seconds()
		case "outboard_server_certificate_expiry_timestamp_seconds":
			r.certificate(use[label("certificate")], "").NotAfter = seconds()
		case "outboard_server_certificate_renewal_timestamp_seconds":
			r.certificate(use[label("certificate")], "").Renewal = seconds()
		case "outboard_server_caller_certificate_expiry_timestamp_seconds":
			r.certificate("caller", label("caller")).NotAfter = seconds()
		case "outboard_server_caller_certificate_renewal_timestamp_seconds":
			r.certificate("caller", label("caller")).Renewal = seconds()
		case "outboard_request_duration_seconds":
			r.count(label("profile"), decision.Verb(label("verb")), label("outcome") == "error", m.GetHistogram())
		case "outboard_server_unserved_requests_total":
			r.lost("path", m.GetCounter())
		case "outboard_server_failed_handshakes_total", "outboard_server_refused_callers_total":
			r.lost(label("reason"), m.GetCounter())
		case "outboard_server_tls_reloads_total":
			if label("outcome") == "success" {
				*reloaded, _ = lastevent.Latest(m.GetCounter())
			}
		case "outboard_resource_capacity":
			of().capacity = m.GetGauge().GetValue()
		case "outboard_resource_allocated":
			of().allocated += m.GetGauge().GetValue()
		case "outboard_resource_unusable":
			of().unusable = m.GetGauge().GetValue()
		case "outboard_requeue_pods_total":
			r.Requeues += int64(m.GetCounter().GetValue())
		}
	}
}

// certificate returns the certificate, which it adds if it is missing.
func (r *Replica) certificate(use, subject string) *Certificate {
	i := slices.IndexFunc(r.Certificates, func(c Certificate) bool { return c.Use == use && c.Subject == subject })
	if i < 0 {
		i = len(r.Certificates)
		r.Certificates = append(r.Certificates, Certificate{Use: use, Subject: subject})
	}
	return &r.Certificates[i]
}

// used is how much there is of a resource, how much of that pods have, and how much of the rest is
// too little for a pod.
type used struct{ capacity, allocated, unusable float64 }

func (r *Replica) calls(profile string, verb decision.Verb) *Calls {
	for i := range r.Profiles {
		for j := range r.Profiles[i].Calls {
			if c := &r.Profiles[i].Calls[j]; r.Profiles[i].Path == profile && c.Verb == verb {
				return c
			}
		}
	}
	return nil
}

func (r *Replica) count(profile string, verb decision.Verb, failed bool, h *dto.Histogram) {
	c := r.calls(profile, verb)
	if c == nil {
		return
	}
	c.Total += int64(h.GetSampleCount())
	c.Calls = c.Total
	if failed {
		c.Failed += int64(h.GetSampleCount())
	}
	c.Durations = c.Durations.Plus(histogram.Of(h))
}

// lost adds calls that no profile serves.
func (r *Replica) lost(reason string, c *dto.Counter) {
	last, example := lastevent.Latest(c)
	if _, known := unserved[reason]; !known || last.IsZero() {
		return
	}
	r.Unserved = append(r.Unserved, Unserved{Reason: reason, Calls: int64(c.GetValue()), Last: last, Example: example})
}

// called sets when the latest calls were, as far as the log knows.
func (r *Replica) called(log *decision.Log) {
	log.Latest(1, func(d *decision.Record) bool {
		if c := r.calls(d.Profile, d.Verb); c != nil && c.Last.IsZero() {
			c.Last = d.Time
		}
		return false
	})
}

// profiles returns the profiles in use, without their calls.
func (s *Source) profiles() []Profile {
	all := []Profile{}
	c := s.Config()
	for i := range c.Profiles {
		p := Profile{Path: c.Profiles[i].Path, Schedulers: append([]string{}, s.Log.SchedulerNames(c.Profiles[i].Path)...), Policies: []Policy{}, Calls: []Calls{}}
		for _, q := range c.Profiles[i].Policies {
			p.Policies = append(p.Policies, Policy{q.Name, q.Type, q.Weight})
		}
		for _, route := range c.Profiles[i].Routes() {
			p.Calls = append(p.Calls, Calls{Verb: route.Verb})
		}
		all = append(all, p)
	}
	return all
}

// Unstamped returns a copy without what changes although nothing has happened.
func (o *Overview) Unstamped() Overview {
	u := *o
	u.Replicas = slices.Clone(o.Replicas)
	for i := range u.Replicas {
		u.Replicas[i].Now = time.Time{}
	}
	return u
}
