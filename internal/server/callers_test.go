package server_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/server"
)

// from returns a dialer of a client at another address of this host.
func from(address string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
}

func dialFrom(t *testing.T, address, to string, config *tls.Config) net.Conn {
	t.Helper()
	c, err := from(address).Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		c = tls.Client(c, config)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Two callers fill the memory for large bodies, and send without pause. A caller with another certificate, or without any at another
// address, gets its share at once.
func TestLargeBodiesOfOthersYield(t *testing.T) {
	const size = 4 << 20
	p := newPKI(t)
	name := func(name string) *tls.Config {
		config := p.config(p.issue(t, p.clientCA, certs.Request{CommonName: name, Client: true}))
		config.ServerName = "127.0.0.1"
		return config
	}
	for _, test := range []struct {
		kind    string
		tls     *server.TLSOptions
		hostile []*tls.Config
		honest  *tls.Config
		address string // of the honest caller
	}{
		{"addresses", nil, make([]*tls.Config, 2), nil, "127.0.0.1"},
		{"certificates", p.options(), []*tls.Config{name("hostile-1"), name("hostile-2")}, name("honest"), "127.0.0.2"},
	} {
		t.Run(test.kind, func(t *testing.T) {
			r := start(t, server.Options{TLS: test.tls, MaxBodyBytes: size, MaxInFlightBytes: 2 * size, BusyTimeout: time.Minute, BodyTimeout: time.Hour, Handler: echo})
			done := make(chan string, 2)
			for i, config := range test.hostile {
				c := dialFrom(t, fmt.Sprint("127.0.0.", 2+i), r.addr, config)
				fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
				go func() {
					for { // never the last byte
						if _, err := c.Write([]byte("x")); err != nil {
							break
						}
						time.Sleep(10 * time.Millisecond)
					}
				}()
				go func() {
					response, _ := io.ReadAll(c) // a reset may follow the response
					done <- string(response)
				}()
			}
			for r.metric(t, "outboard_server_reserved_bytes") < 2*size {
				time.Sleep(time.Millisecond)
			}
			client, url := newClient(t, test.honest), "http://"+r.addr
			client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				return from(test.address).DialContext(ctx, network, address)
			}
			if test.honest != nil {
				url = "https://" + r.addr
			}
			body := strings.Repeat("x", 115_000)
			if got := mustPost(t, client, url, body, 200); got != body {
				t.Errorf("the honest caller gets %.100q", got)
			}
			const why = "Error: server busy: other requests need the memory that this one held while it waited"
			if response := <-done; !strings.Contains(response, why) {
				t.Errorf("the caller that yields gets %q, want %q in it", response, why)
			}
		})
	}
}

// All connections of the server serve requests of one address, and its clients read no response. A client at another address is served, and
// one at the same address is, too.
func TestConnectionsOfOneAddressYield(t *testing.T) {
	const most = 8
	serving := make(chan bool, 2*most)
	r := start(t, server.Options{MaxConnections: most, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/endless" {
			return
		}
		serving <- true
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})})
	for range most {
		fmt.Fprint(dialFrom(t, "127.0.0.2", r.addr, nil), "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
		<-serving
	}
	for range 3 {
		for _, address := range []string{"127.0.0.1", "127.0.0.2"} {
			client := newClient(t, nil)
			client.Transport.(*http.Transport).DialContext = from(address).DialContext
			mustPost(t, client, "http://"+r.addr, "hello", 200)
		}
	}
	if got := r.metric(t, "outboard_server_connections_total", "refused"); got > 0 {
		t.Errorf("%v connections refused", got)
	}
}

// Who reads nothing of a response of the admin address holds it for others no longer than a second, and no probe waits.
func TestAdminServesOneReaderAtATime(t *testing.T) {
	serving := make(chan bool, 10)
	r := start(t, server.Options{BusyTimeout: time.Minute, Handler: echo, Admin: server.AdminOptions{Handlers: map[string]http.Handler{
		"/endless": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			serving <- true
			for {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}),
	}}})
	for range 3 {
		fmt.Fprint(dialFrom(t, "127.0.0.1", r.AdminAddr().String(), nil), "GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	<-serving
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if status, body := r.get(t, path); status != 200 {
			t.Errorf("GET %s = %d %q", path, status, body)
		}
	}
}

// Who reads metrics without a pause takes at most a tenth of a processor.
func TestReadersOfMetricsRest(t *testing.T) {
	r := start(t, server.Options{Handler: echo})
	var began, ended []time.Time
	r.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "slow"}, func() float64 {
		began = append(began, time.Now())
		time.Sleep(20 * time.Millisecond)
		ended = append(ended, time.Now())
		return 0
	}))
	for range 4 {
		if status, body := r.get(t, "/metrics"); status != 200 {
			t.Fatalf("GET /metrics = %d %q", status, body)
		}
	}
	for i := range began[1:] {
		took, rested := ended[i].Sub(began[i]), began[i+1].Sub(ended[i])
		if want := min(9*took, 900*time.Millisecond); rested < want {
			t.Errorf("after %s, the caller rested for %s, want at least %s", took, rested, want)
		}
	}
}
