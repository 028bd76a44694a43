package server_test

import (
	"bufio"
	"bytes"
	cryptotls "crypto/tls"
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
		refused  bool // or the handler can read the whole body
		reason   string
	}{
		{"empty", 0, func() io.Reader { return strings.NewReader("") }, false, ""},
		{"declared, as large as allowed", limit, func() io.Reader { return bytes.NewReader(make([]byte, limit)) }, false, ""},
		{"chunked, as large as allowed", -1, func() io.Reader { return bytes.NewReader(make([]byte, limit)) }, false, ""},
		{"declared, one byte more", limit + 1, func() io.Reader { return bytes.NewReader(make([]byte, limit+1)) }, true, "too_large"},
		{"chunked, one byte more", -1, func() io.Reader { return bytes.NewReader(make([]byte, limit+1)) }, true, "too_large"},
		{"chunked without end", -1, func() io.Reader { return zeros{} }, true, "too_large"},
		{"declared 1 GiB", 1 << 30, func() io.Reader { return zeros{} }, true, "too_large"},
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
			} else if !tc.refused {
				t.Error(err)
			}
			first, again := <-got, <-got
			if !tc.refused {
				if first != io.EOF {
					t.Errorf("reading the body: %v", first)
				}
				return
			}
			if !strings.HasPrefix(first.Error(), "request body too large: ") || again == nil || again.Error() != first.Error() {
				t.Errorf("reading the body: %v, and again: %v; want an error about its size twice", first, again)
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

// More large bodies than there is memory for are served one after the other.
func TestCompetingBodiesDoNotDeadlock(t *testing.T) {
	const size = 1 << 20
	r := start(t, server.Options{MaxBodyBytes: size, MaxInFlightBytes: 3 * size, BusyTimeout: time.Hour,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			body, _ := io.ReadAll(req.Body)
			if err := server.ReserveMemory(req.Context(), 40<<20); err != nil {
				t.Error(err)
			}
			_, _ = w.Write(body)
		})})
	body := strings.Repeat("x", size)
	var running sync.WaitGroup
	for range 20 {
		client := newClient(t, nil)
		running.Go(func() {
			if status, answer, err := post(client, "http://"+r.addr, body); err != nil || answer != body {
				t.Errorf("got status %d and %d bytes, %v", status, len(answer), err)
			}
		})
	}
	running.Wait()
}

// While large bodies fill the memory and their senders stall, the server refuses a large call and
// serves a small one.
func TestFullMemoryStopsOnlyLargeCalls(t *testing.T) {
	const size = 1 << 20
	r := start(t, server.Options{MaxBodyBytes: size, MaxInFlightBytes: size, BusyTimeout: time.Millisecond, Handler: echo})
	stalled := dial(t, r.addr)
	fmt.Fprintf(stalled, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
	_, _ = stalled.Write(make([]byte, size-1))
	for r.metric(t, "outboard_server_reserved_bytes") < size {
		time.Sleep(time.Millisecond)
	}
	client := newClient(t, nil)
	for _, n := range []int{10, 64 << 10, 96 << 10} {
		if got := mustPost(t, client, "http://"+r.addr, strings.Repeat("x", n), 200); len(got) != n {
			t.Errorf("a call of %d bytes: %.100q", n, got)
		}
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

// The memory that a handler reserves is free when the handler returns. Requests that reserve little
// do not wait for those that reserve more. Only a request with a body can reserve memory.
func TestReserveMemory(t *testing.T) {
	holds, end := make(chan bool), make(chan bool)
	r := start(t, server.Options{BusyTimeout: time.Millisecond, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var bytes int64
		fmt.Sscan(req.URL.Path[1:], &bytes)
		if err := server.ReserveMemory(req.Context(), bytes); err != nil {
			fmt.Fprint(w, err)
			return
		}
		if req.URL.RawQuery == "wait" {
			holds <- true
			<-end
		}
	})})
	call := func(path, body string) string {
		return mustPost(t, newClient(t, nil), "http://"+r.addr+path, body, 200)
	}
	go call("/60000000?wait", "hello")
	<-holds
	if got := call("/10000000", "hello"); !strings.HasPrefix(got, "server busy: requests hold the 67108864 bytes for decoding large requests") {
		t.Errorf("a second large request gets %q", got)
	}
	for range 100 {
		if got := call("/4000000", "hello"); got != "" {
			t.Errorf("an ordinary request gets %q", got)
		}
	}
	if got := call("/60000000", ""); got != "" {
		t.Errorf("a request without a body gets %q", got)
	}
	if got := r.metric(t, "outboard_server_reserved_bytes"); got != 60_000_000 {
		t.Errorf("%v bytes reserved", got)
	}
	end <- true
	r.stop()
	<-r.ended
	if got := r.metric(t, "outboard_server_reserved_bytes"); got != 0 {
		t.Errorf("%v bytes reserved at the end", got)
	}
}
