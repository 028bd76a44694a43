package config

import (
	"slices"
	"strings"
)

// exposure is a change of Process with which more callers can bind pods, or read what Outboard
// knows.
type exposure struct {
	field string   // which makes it so
	how   string   // what is the case with the field now
	who   string   // what is possible then
	with  []string // further fields whose changes it explains
}

func (e exposure) String() string {
	return e.field + ": " + e.how + ": from the next start on, " + e.who
}

// explains reports whether the change is a part of the exposure.
func (e exposure) explains(c Change) bool {
	return c.Path == e.field || slices.Contains(e.with, c.Path)
}

// exposures returns what the new configuration exposes, and the old one does not. The plugin serves
// the admin address only.
func exposures(old, new *Process, plugin bool) (all []exposure) {
	if !plugin {
		all = servingExposures(&old.Serving, &new.Serving)
	}
	return append(all, adminExposures(&old.Admin, &new.Admin)...)
}

// servingExposures compares who can bind pods. A CA in another file is not known to admit more
// callers.
func servingExposures(old, new *Serving) (all []exposure) {
	authenticates := func(s *Serving) bool { return s.TLS != nil && s.TLS.ClientCAFile != "" }
	who := "every client that reaches " + new.Address + " can bind pods"
	with := []string{"serving.insecure", "serving.address", "serving.tls.allowedClients"}
	wider := widened(old.Address, new.Address)
	switch {
	case authenticates(old) && new.TLS == nil:
		return []exposure{{"serving.tls", "is removed", who, with}}
	case authenticates(old) && !authenticates(new):
		return []exposure{{"serving.tls.clientCAFile", "is removed", who, with}}
	case !authenticates(new) && wider != "":
		return []exposure{{"serving.address", wider, who, []string{"serving.insecure"}}}
	case !authenticates(new):
		return nil
	case wider != "":
		all = []exposure{{"serving.address", wider, "every client that reaches " + new.Address + " with a certificate that Outboard accepts can bind pods", nil}}
	}
	if !authenticates(old) || len(old.TLS.AllowedClients) == 0 {
		return all
	}
	added := slices.DeleteFunc(slices.Clone(new.TLS.AllowedClients), func(name string) bool { return slices.Contains(old.TLS.AllowedClients, name) })
	const allowed = "serving.tls.allowedClients"
	switch {
	case len(new.TLS.AllowedClients) == 0:
		all = append(all, exposure{allowed, "is empty", "every client with a certificate of the CA can bind pods", nil})
	case len(added) > 0:
		all = append(all, exposure{allowed, "also has " + strings.Join(added, ", "), "clients with a certificate of this name can bind pods", nil})
	}
	return all
}

// adminExposures compares what other hosts can read; expose has no effect at a loopback address.
func adminExposures(old, new *Admin) (all []exposure) {
	const address = "admin.address"
	order := []Expose{ExposeNone, ExposeMetrics, ExposeAll}
	shows := map[Expose]string{
		ExposeMetrics: " can read the metrics and whether Outboard is ready",
		ExposeAll:     " can read which pods exist, and where, the explanations and the metrics",
	}[new.Expose]
	more, wider := slices.Index(order, new.Expose) > slices.Index(order, old.Expose), widened(old.Address, new.Address)
	a, _ := parseAddress(nil, new.Address)
	who := "every client that reaches " + new.Address + shows
	switch {
	case a.loopback:
	case more:
		all = []exposure{{"admin.expose", "is " + string(new.Expose), who, []string{address}}}
	case wider != "":
		all = []exposure{{address, wider, who, nil}}
	}
	if new.Pprof && !old.Pprof {
		all = append(all, exposure{"admin.pprof", "is true", "every process that reaches " + new.Address + ", and every user of kubectl port-forward, can read profiles of the memory", nil})
	}
	return all
}

// widened says what makes more clients reach the new address than the old one; "" if that is not
// known.
func widened(old, new string) string {
	before, _ := parseAddress(nil, old)
	after, _ := parseAddress(nil, new)
	switch {
	case before.loopback && !after.loopback:
		return "is not a loopback address any more"
	case before.host != "" && after.host == "":
		return "is now every address of the host"
	}
	return ""
}
