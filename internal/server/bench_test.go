package server_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/server"
)

// The body of a bind call as kube-scheduler sends it.
const bindBody = `{"PodName":"pod-1","PodNamespace":"default","PodUID":"2b6f5c3e-8f0a-4c1d-9f43-1f0c8f0f7a11","Node":"node-0001"}`

// schedulerClient creates a client as kube-scheduler creates its client for an extender.
func schedulerClient(p *pki, t testing.TB, timeout time.Duration) *http.Client {
	transport := utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: p.config(p.issue(t, p.clientCA, certs.Request{CommonName: "system:kube-scheduler", Client: true})),
	})
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: timeout}
}

// callAll makes calls from several goroutines and returns how many failed.
func callAll(client *http.Client, url string, calls, concurrency int) int {
	var next, failed atomic.Int64
	var running sync.WaitGroup
	for range concurrency {
		running.Go(func() {
			for next.Add(1) <= int64(calls) {
				if status, _, err := post(client, url, bindBody); err != nil || status != 200 {
					failed.Add(1)
				}
			}
		})
	}
	running.Wait()
	return int(failed.Load())
}

// table is a table of results, printed at the end of a benchmark.
type table struct {
	text   strings.Builder
	writer *tabwriter.Writer
}

func newTable(columns ...any) *table {
	t := &table{}
	t.writer = tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', 0)
	t.row(columns...)
	return t
}

func (t *table) row(cells ...any) {
	fmt.Fprint(t.writer, strings.TrimSuffix(fmt.Sprintln(cells...), "\n"))
	fmt.Fprintln(t.writer)
}

func (t *table) String() string {
	_ = t.writer.Flush()
	return t.text.String()
}

// BenchmarkConcurrentBinds compares HTTP/1.1 and HTTP/2 for bursts of small calls that take about 5 ms each. Both run at the
// same time, so that their ratio is valid on a busy machine.
func BenchmarkConcurrentBinds(b *testing.B) {
	p := newPKI(b)
	work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(5 * time.Millisecond)
		w.Header().Set("Content-Length", "12")
		fmt.Fprint(w, `{"Error":""}`)
	})
	for _, concurrency := range []int{1, 8, 16, 32, 64} {
		b.Run(fmt.Sprint(concurrency), func(b *testing.B) {
			calls := max(b.N, concurrency)
			var took [2]time.Duration
			var opened [2]float64
			for i, http2 := range []bool{false, true} {
				r := start(b, server.Options{TLS: p.options("system:kube-scheduler"), HTTP2: http2, Handler: work})
				client := schedulerClient(p, b, 0)
				began := time.Now()
				if failed := callAll(client, "https://"+r.addr+"/bind", calls, concurrency); failed > 0 {
					b.Fatalf("%d calls failed", failed)
				}
				took[i] = time.Since(began)
				opened[i] = 1000 * r.metric(b, "outboard_server_connections_total", "accepted") / float64(calls)
			}
			b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "h1/h2-time")
			b.ReportMetric(opened[0], "h1-conns/1000calls")
			b.ReportMetric(opened[1], "h2-conns/1000calls")
			b.ReportMetric(float64(calls)/took[0].Seconds(), "h1-calls/s")
			b.ReportMetric(float64(calls)/took[1].Seconds(), "h2-calls/s")
		})
	}
}

// A balancer forwards each TCP connection to one of several addresses, as a Service does. It can freeze an address, like a host
// that loses its power: connections stay open and get no responses.
type balancer struct {
	net.Listener
	running sync.WaitGroup

	mu     sync.Mutex
	addrs  []string
	turn   int
	frozen map[string]chan struct{} // closed when the address is frozen
	conns  []net.Conn
}

func newBalancer(t testing.TB, addrs ...string) *balancer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{Listener: l, addrs: addrs, frozen: map[string]chan struct{}{}}
	for _, addr := range addrs {
		b.frozen[addr] = make(chan struct{})
	}
	b.running.Go(b.accept)
	t.Cleanup(func() {
		l.Close()
		b.mu.Lock()
		for _, c := range b.conns {
			c.Close()
		}
		b.mu.Unlock()
		b.running.Wait()
	})
	return b
}

func (b *balancer) accept() {
	for {
		client, err := b.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		b.turn++
		addr := b.addrs[b.turn%len(b.addrs)]
		frozen := b.frozen[addr]
		backend, err := net.Dial("tcp", addr)
		if err != nil {
			client.Close()
			b.mu.Unlock()
			continue
		}
		b.conns = append(b.conns, client, backend)
		b.mu.Unlock()
		b.running.Go(func() { forward(backend, client, frozen) })
		b.running.Go(func() { forward(client, backend, frozen) })
	}
}

func forward(to, from net.Conn, frozen <-chan struct{}) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-frozen:
			return // without closing anything
		default:
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	to.Close()
	from.Close()
}

// freeze freezes an address. New connections go to the others, as they do after the removal of the endpoint.
func (b *balancer) freeze(addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.frozen[addr])
	var left []string
	for _, a := range b.addrs {
		if a != addr {
			left = append(left, a)
		}
	}
	b.addrs = left
}

// BenchmarkDeadReplica counts how many calls fail after one of two replicas behind one address freezes: sequential calls, as
// filter makes them, and concurrent calls, as bind makes them. The replicas freeze in turn, because an HTTP/2 connection leads
// to only one of them. The result is how many timeouts a caller waits for: kube-scheduler's timeout is 5 s.
func BenchmarkDeadReplica(b *testing.B) {
	const timeout = 500 * time.Millisecond // long enough for a handshake on a busy machine
	const before, after = 200, 200
	p := newPKI(b)
	results := newTable("protocol\tconcurrency\tcalls after\tfailed in each trial")
	for _, concurrency := range []int{1, 8} {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
			var trials []string
			sum, trialCount := 0, 2*b.N
			for trial := range trialCount {
				failed := deadReplicaTrial(b, p, protocol == "HTTP/2", concurrency, before, after, trial%2, timeout)
				sum += failed
				trials = append(trials, fmt.Sprint(failed))
			}
			results.row(fmt.Sprintf("%s\t%d\t%d\t%s", protocol, concurrency, after, strings.Join(trials, ", ")))
			name := fmt.Sprintf("%s-concurrency-%d-failed/trial", strings.NewReplacer("HTTP/", "h", ".1", "").Replace(protocol), concurrency)
			b.ReportMetric(float64(sum)/float64(trialCount), name)
		}
	}
	b.Log("\n" + results.String())
}

func deadReplicaTrial(b *testing.B, p *pki, http2 bool, concurrency, before, after, victim int, timeout time.Duration) int {
	opts := server.Options{TLS: p.options(), HTTP2: http2, Handler: echo}
	replicas := []*replica{start(b, opts), start(b, opts)}
	balancer := newBalancer(b, replicas[0].addr, replicas[1].addr)
	url := "https://" + balancer.Addr().String() + "/bind"
	client := schedulerClient(p, b, 0)
	defer client.CloseIdleConnections()
	if failed := callAll(client, url, before, concurrency); failed > 0 {
		b.Fatalf("%d calls failed before the replica froze", failed)
	}
	balancer.freeze(replicas[victim].addr)
	client.Timeout = timeout
	return callAll(client, url, after, concurrency)
}
