package network

import (
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// fault is a way in which a network fails.
type fault struct {
	// toxics are those of Toxiproxy, for each direction of a connection. Without any, connections are refused.
	toxics []string
	// breaks is whether the connections are useless after the fault.
	breaks bool
}

// faults are the faults by the names that the page uses.
var faults = map[string]fault{
	"high latency": {toxics: []string{
		`{"type": "latency", "stream": "downstream", "attributes": {"latency": 200, "jitter": 50}}`,
	}},
	"low bandwidth": {toxics: []string{
		`{"type": "bandwidth", "stream": "upstream", "attributes": {"rate": 8}}`,
		`{"type": "bandwidth", "stream": "downstream", "attributes": {"rate": 8}}`,
	}},
	// Toxiproxy resets new connections, and closes the others.
	"reset connections": {breaks: true, toxics: []string{
		`{"type": "reset_peer", "stream": "upstream"}`,
		`{"type": "reset_peer", "stream": "downstream"}`,
	}},
	"lost packets": {breaks: true, toxics: []string{
		`{"type": "timeout", "stream": "upstream", "attributes": {"timeout": 0}}`,
		`{"type": "timeout", "stream": "downstream", "attributes": {"timeout": 0}}`,
	}},
	"slow close": {toxics: []string{
		`{"type": "slow_close", "stream": "upstream", "attributes": {"delay": 2000}}`,
		`{"type": "slow_close", "stream": "downstream", "attributes": {"delay": 2000}}`,
	}},
	"cut responses": {breaks: true, toxics: []string{
		`{"type": "limit_data", "stream": "downstream", "attributes": {"bytes": 10}}`,
	}},
	"refused connections": {breaks: true},
}

// link is a network between a client and a server.
type link struct {
	t      *testing.T
	server *toxiproxy.ApiServer
	proxy  *toxiproxy.Proxy
}

// connect returns a link on which clients connect to the address to reach the server.
func connect(t *testing.T, address, server string) *link {
	t.Helper()
	l := &link{t: t, server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())}
	l.start(address, server)
	t.Cleanup(func() { l.proxy.Stop() })
	return l
}

func (l *link) start(address, server string) {
	l.t.Helper()
	l.proxy = toxiproxy.NewProxy(l.server, "", address, server)
	if err := l.proxy.Start(); err != nil {
		l.t.Fatal(err)
	}
}

// fail makes the link fail.
func (l *link) fail(f fault) {
	l.t.Helper()
	for _, toxic := range f.toxics {
		if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			l.t.Fatal(err)
		}
	}
	if len(f.toxics) == 0 {
		l.proxy.Stop()
	}
}

// heal ends the fault.
func (l *link) heal(f fault) {
	l.t.Helper()
	if !f.breaks {
		l.proxy.Toxics.ResetToxics(l.t.Context())
		return
	}
	l.proxy.Stop()
	l.start(l.proxy.Listen, l.proxy.Upstream)
}
