package server_test

import (
	"bufio"
	"bytes"
	"context"
	cryptotls "crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"outboard.dev/outboard/internal/server"
)

// zeros is a body without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestBodyErrorsReachTheHandler(t *testing.T) {
	const limit = 1 << 20
	tests := []struct {
		name     string
		declared int64 // -1: chunked
		body     func() io.Reader
		want     error // nil: the handler can read the whole body
		reason   string
	}{
		{"empty", 0, func() io.Reader { return strings.NewReader("") }, nil, ""},
		{"declared, as large as allowed", limit, func() io.Reader { return bytes.NewReader(make([]byte, limit)) }, nil, ""},
		{"chunked, as large as allowed", -1, func() io.Reader { return bytes.NewReader(make([]byte, limit)) }, nil, ""},
		{"declared, one byte more", limit + 1, func() io.Reader { return bytes.NewReader(make([]byte, limit+1)) }, server.ErrBodyTooLarge, "too_large"},
		{"chunked, one byte more", -1, func() io.Reader { return bytes.NewReader(make([]byte, limit+1)) }, server.ErrBodyTooLarge, "too_large"},
		{"chunked without end", -1, func() io.Reader { return zeros{} }, server.ErrBodyTooLarge, "too_large"},
		{"declared 1 GiB", 1 << 30, func() io.Reader { return zeros{} }, server.ErrBodyTooLarge, "too_large"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := make(chan error, 2)
			var read atomic.Int64
			r := start(t, server.Options{MaxBodyBytes: limit, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n, err := io.Copy(io.Discard, r.Body)
				read.Store(n)
				_, again := r.Body.Read(make([]byte, 1))
				if err == nil {
					err, again = io.EOF, io.EOF
				}
				got <- err
				got <- again
				fmt.Fprint(w, "answer")
			})})
			req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+r.addr, tc.body())
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = tc.declared
			if tc.declared == 0 {
				req.Body = http.NoBody
			}
			resp, err := newClient(t, nil).Do(req)
			if err == nil { // otherwise the response came before the end of the body
				resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Errorf("got status %d, want 200", resp.StatusCode)
				}
			} else if tc.want == nil {
				t.Error(err)
			}
			first, again := <-got, <-got
			if tc.want == nil {
				if first != io.EOF {
					t.Errorf("reading the body: %v", first)
				}
				return
			}
			if !errors.Is(first, tc.want) || again == nil || again.Error() != first.Error() {
				t.Errorf("reading the body: %v, and again: %v; want %v twice", first, again, tc.want)
			}
			if tc.declared > limit && read.Load() > 0 {
				t.Errorf("%d bytes read of a body declared too large", read.Load())
			}
			if got := r.metric(t, "outboard_server_refused_bodies_total", tc.reason); got != 1 {
				t.Errorf("requests refused for %s: %v, want 1", tc.reason, got)
			}
		})
	}
}

// A caller whose request is refused gets the response, even if the server read nothing of the body.
func TestTooLargeContentLengthIsRefusedBeforeTheBody(t *testing.T) {
	r := start(t, server.Options{MaxBodyBytes: 1000, Handler: echo})
	c := dial(t, r.addr)
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 1<<30)
	answer, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(answer), "200 OK") ||
		!strings.Contains(string(answer), "Error: request body too large: 1073741824 bytes declared, the limit is 1000") {
		t.Errorf("got response %q, %v", answer, err)
	}
}

func TestSlowBodyTimesOut(t *testing.T) {
	p := newPKI(t)
	for name, opts := range map[string]server.Options{"plain": {}, "tls": {TLS: p.options()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts.BodyTimeout, opts.Handler = 100*time.Millisecond, echo
			r := start(t, opts)
			c := dial(t, r.addr)
			_ = c.SetDeadline(time.Now().Add(time.Minute)) // only a server without a timeout takes as long
			if opts.TLS != nil {
				client, _ := p.client(t, r)
				config := client.Transport.(*http.Transport).TLSClientConfig
				config.ServerName = "127.0.0.1"
				c = cryptotls.Client(c, config)
			}
			// One write: the five bytes come with the header, before the time begins.
			if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhello"); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			if err != nil || string(answer) != "Error: request body not received in time: 5 bytes came within 100ms" {
				t.Errorf("got response %q, %v", answer, err)
			}
			if got := r.metric(t, "outboard_server_refused_bodies_total", "timeout"); got != 1 {
				t.Errorf("got %v timeouts, want 1", got)
			}
		})
	}
}

// The timeout limits the body only: a handler that takes longer keeps its context, with a body and without.
func TestBodyTimeoutEndsWithTheBody(t *testing.T) {
	const timeout = 30 * time.Millisecond
	r := start(t, server.Options{BodyTimeout: timeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
			http.Error(w, "cancelled", 500)
		case <-time.After(4 * timeout):
		}
	})})
	client := newClient(t, nil)
	mustPost(t, client, "http://"+r.addr, "hello", 200)
	mustPost(t, client, "http://"+r.addr, "", 200)
}

func TestEncodedBodyIsRefused(t *testing.T) {
	var called atomic.Bool
	r := start(t, server.Options{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called.Store(true) })})
	for _, encoding := range []string{"gzip", "GZIP", "br", "identity, gzip"} {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+r.addr, strings.NewReader("x"))
		req.Header.Set("Content-Encoding", encoding)
		resp, err := newClient(t, nil).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnsupportedMediaType || called.Load() {
			t.Errorf("%s: status %d, handler called: %v", encoding, resp.StatusCode, called.Load())
		}
	}
	req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+r.addr, strings.NewReader("x"))
	req.Header.Set("Content-Encoding", "Identity")
	resp, err := newClient(t, nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("identity: status %d, want 200", resp.StatusCode)
	}
}

// A request that only declares a large body reserves nothing, and its memory is free when the handler has returned.
func TestBytesAreCountedAsTheyArrive(t *testing.T) {
	held := make(chan float64)
	proceed := make(chan struct{})
	var r *replica
	r = start(t, server.Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for range 2 {
			<-proceed
			_, _ = io.ReadFull(req.Body, make([]byte, 1000))
			held <- r.metric(t, "outboard_server_in_flight_body_bytes")
		}
	})})
	c := dial(t, r.addr)
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2000\r\n\r\n")
	if got := r.metric(t, "outboard_server_in_flight_body_bytes"); got != 0 {
		t.Errorf("a declaration holds %v bytes", got)
	}
	for _, want := range []float64{1000, 2000} {
		_, _ = c.Write(make([]byte, 1000))
		proceed <- struct{}{}
		if got := <-held; got != want {
			t.Errorf("%v bytes held, want %v", got, want)
		}
	}
	_, _ = io.ReadAll(c)
	if got := r.metric(t, "outboard_server_in_flight_body_bytes"); got != 0 {
		t.Errorf("%v bytes held after the response", got)
	}
}

// Many incomplete bodies together exceed the memory: every request gets a response, and some get their echo.
func TestCompetingBodiesDoNotDeadlock(t *testing.T) {
	const size = 1 << 20
	r := start(t, server.Options{MaxBodyBytes: size, MaxInFlightBytes: 3 * size, BusyTimeout: time.Hour, Handler: echo})
	body := strings.Repeat("x", size)
	var served, busy atomic.Int64
	var running sync.WaitGroup
	for range 40 {
		client := newClient(t, nil)
		running.Go(func() {
			status, answer, err := post(client, "http://"+r.addr, body)
			switch {
			case err == nil && answer == body:
				served.Add(1)
			case err != nil, strings.HasPrefix(answer, "Error: server busy: "):
				// Or a reset: the response came while the client was still sending.
				busy.Add(1)
			default:
				t.Errorf("got status %d and %d bytes", status, len(answer))
			}
		})
	}
	running.Wait()
	if served.Load() == 0 {
		t.Error("no request succeeded")
	}
	if got := r.metric(t, "outboard_server_in_flight_body_bytes"); got != 0 {
		t.Errorf("%v bytes held at the end", got)
	}
	t.Logf("%d succeeded, %d refused as busy", served.Load(), busy.Load())
}

// While large bodies fill the memory and their senders stall, the server refuses a large call and serves a small one.
func TestFullMemoryStopsOnlyLargeCalls(t *testing.T) {
	const size = 1 << 20
	r := start(t, server.Options{MaxBodyBytes: size, MaxInFlightBytes: size, BusyTimeout: time.Millisecond, Handler: echo},
		func(s *server.Server) { s.SetSlow(time.Hour) }) // so that no sender stalls long enough to yield, however slow the test is
	stalled := dial(t, r.addr)
	fmt.Fprintf(stalled, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
	_, _ = stalled.Write(make([]byte, size-1))
	for r.metric(t, "outboard_server_in_flight_body_bytes") < size-1 {
		time.Sleep(time.Millisecond)
	}
	client := newClient(t, nil)
	if got := mustPost(t, client, "http://"+r.addr, "hello", 200); got != "hello" {
		t.Errorf("small call: %q", got)
	}
	if got := mustPost(t, client, "http://"+r.addr, strings.Repeat("x", 100<<10), 200); !strings.HasPrefix(got, "Error: server busy: ") {
		t.Errorf("large call: %q", got)
	}
	if got := r.metric(t, "outboard_server_refused_bodies_total", "busy"); got != 1 {
		t.Errorf("got %v requests refused as busy, want 1", got)
	}
	_, _ = stalled.Write([]byte{'!'})
	if _, err := io.ReadFull(stalled, make([]byte, size)); err != nil {
		t.Errorf("the large call in progress: %v", err)
	}
}

// A client that disconnects while its body waits for memory leaves nothing reserved.
func TestBodiesEndWithTheirConnections(t *testing.T) {
	const size = 1 << 20
	r := start(t, server.Options{MaxBodyBytes: size, MaxInFlightBytes: size, Handler: echo})
	for range 20 {
		c := dial(t, r.addr)
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
		_, _ = c.Write(make([]byte, size/4))
		c.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for r.metric(t, "outboard_server_open_connections") > 0 {
		if ctx.Err() != nil {
			t.Fatal("connections stay open")
		}
		time.Sleep(time.Millisecond)
	}
	if got := r.metric(t, "outboard_server_in_flight_body_bytes"); got != 0 {
		t.Errorf("%v bytes held at the end", got)
	}
}

// The maximum number of connections send one byte of a body and wait. The server closes the slowest of them for each new caller.
func TestSlowBodiesDoNotKeepCallersOut(t *testing.T) {
	p := newPKI(t)
	for name, tls := range map[string]*server.TLSOptions{"plain": nil, "tls": p.options()} {
		t.Run(name, func(t *testing.T) {
			const maximum = 32
			r := start(t, server.Options{TLS: tls, MaxConnections: maximum, BodyTimeout: time.Hour, Handler: echo})
			client, url := newClient(t, nil), "http://"+r.addr
			connect := func() io.Writer { return dial(t, r.addr) }
			if tls != nil {
				client, url = p.client(t, r)
				config := client.Transport.(*http.Transport).TLSClientConfig
				connect = func() io.Writer {
					c, err := cryptotls.Dial("tcp", r.addr, config)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { c.Close() })
					return c
				}
			}
			mustPost(t, client, url, "hello", 200)
			for range maximum + 5 { // the client's idle connection is closed, too
				fmt.Fprint(connect(), "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
				time.Sleep(5 * time.Millisecond)
			}
			for range 10 {
				client.CloseIdleConnections() // the client may not have noticed yet that the server closed its connection
				mustPost(t, client, url, "hello", 200)
			}
			if got := r.metric(t, "outboard_server_connections_total", "refused"); got > 0 {
				t.Errorf("%v connections refused", got)
			}
		})
	}
}

// Bodies that fill the memory, slowly or forever, do not block calls of ordinary size: 64 KiB of names, and a pod.
func TestHeldMemoryKeepsNoOrdinaryCallOut(t *testing.T) {
	const size = 1 << 20
	r := start(t, server.Options{MaxBodyBytes: size, MaxInFlightBytes: 4 * size, BusyTimeout: time.Millisecond, BodyTimeout: time.Hour, Handler: echo})
	for range 4 {
		c := dial(t, r.addr)
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
		_, _ = c.Write(make([]byte, size-1))
	}
	for r.metric(t, "outboard_server_in_flight_body_bytes") < 4*(size-1) {
		time.Sleep(time.Millisecond)
	}
	for _, n := range []int{10, 21 << 10, 64 << 10, 96 << 10} {
		if got := mustPost(t, newClient(t, nil), "http://"+r.addr, strings.Repeat("x", n), 200); len(got) != n {
			t.Errorf("a call of %d bytes: %.100q", n, got)
		}
	}
}

// A large body that waits for memory gets the memory of bodies that do not arrive.
func TestSlowBodiesGiveTheirRoomUp(t *testing.T) {
	const size = 1 << 20
	r := start(t, server.Options{MaxBodyBytes: size, MaxInFlightBytes: 2 * size, BusyTimeout: time.Minute, BodyTimeout: time.Hour, Handler: echo})
	for range 2 {
		fmt.Fprintf(dial(t, r.addr), "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\nx", size)
	}
	for r.metric(t, "outboard_server_reserved_bytes") < 2*size {
		time.Sleep(time.Millisecond)
	}
	if got := mustPost(t, newClient(t, nil), "http://"+r.addr, strings.Repeat("x", size), 200); len(got) != size {
		t.Errorf("got %.100q", got)
	}
	if got := r.metric(t, "outboard_server_refused_bodies_total", "busy"); got == 0 {
		t.Error("no request yielded")
	}
}

// The memory that a handler reserves is free when the handler returns, and only a request with a body can reserve memory.
func TestReserveLastsUntilTheHandlerReturns(t *testing.T) {
	reserved := make(chan float64, 1)
	var r *replica
	r = start(t, server.Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := server.ReserveMemory(req.Context(), 4<<20); err != nil {
			t.Error(err)
		}
		echo(w, req)
		reserved <- r.metric(t, "outboard_server_reserved_bytes")
	})})
	for body, want := range map[string]float64{"hello": 4<<20 + 5, "": 0} {
		mustPost(t, newClient(t, nil), "http://"+r.addr, body, 200)
		if got := <-reserved; got != want {
			t.Errorf("%v bytes reserved for %q, want %v", got, body, want)
		}
	}
	r.stop()
	<-r.ended
	if got := r.metric(t, "outboard_server_reserved_bytes"); got != 0 {
		t.Errorf("%v bytes reserved at the end", got)
	}
}
