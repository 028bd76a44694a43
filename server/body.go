package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Errors of reading a request's body, to be told apart with [errors.Is]. The returned errors say more.
var (
	// ErrBodyTooLarge: the body exceeds [Options.MaxBodyBytes]. When its length was declared, nothing has been read.
	ErrBodyTooLarge = errors.New("request body too large")

	// ErrBusy: other requests hold [Options.MaxInFlightBytes], and did not give enough back in time.
	ErrBusy = errors.New("server busy")

	// ErrBodyTimeout: the body did not arrive within [Options.BodyTimeout].
	ErrBodyTimeout = errors.New("request body not received in time")
)

const (
	// readStep is how much is read before it is counted, and so what an uncounted reader can hold at most.
	readStep = 32 << 10

	// Bodies of at most smallBody may use smallReserve beyond the limit: a bind is smaller, and shall pass however many
	// large bodies wait for room.
	smallBody    = 16 << 10
	smallReserve = 16 << 20
)

// A budget bounds the bytes that requests hold together. Requests that find no room wait, the oldest first. When all
// that hold something wait, nobody will ever give back, so the youngest of them is refused: its bytes let the others
// finish.
type budget struct {
	limit int64
	gauge prometheus.Gauge
	ages  atomic.Uint64

	mu      sync.Mutex
	used    int64
	holders int       // leases that hold bytes
	waiting []*waiter // oldest lease first
}

type waiter struct {
	lease *lease
	want  int64
	done  chan error // capacity 1: nil when granted
}

// A lease is what one request holds. It is used by one goroutine at a time.
type lease struct {
	budget *budget
	age    uint64
	held   int64         // guarded by budget.mu
	waited time.Duration // so far
}

func (b *budget) lease() *lease { return &lease{budget: b, age: b.ages.Add(1)} }

// grow takes n more bytes. It waits for room until the lease has waited for patience altogether.
func (l *lease) grow(ctx context.Context, n int64, patience time.Duration) error {
	b := l.budget
	b.mu.Lock()
	if b.fits(l, n) && (len(b.waiting) == 0 || l.age < b.waiting[0].lease.age || l.held+n <= smallBody) {
		b.grant(l, n)
		b.mu.Unlock()
		return nil
	}
	w := &waiter{lease: l, want: n, done: make(chan error, 1)}
	at, _ := slices.BinarySearchFunc(b.waiting, l.age, func(w *waiter, age uint64) int {
		return int(int64(w.lease.age) - int64(age))
	})
	b.waiting = slices.Insert(b.waiting, at, w)
	b.settle()
	b.mu.Unlock()

	began := time.Now()
	defer func() { l.waited += time.Since(began) }()
	timer := time.NewTimer(patience - l.waited)
	defer timer.Stop()
	var why error
	select {
	case err := <-w.done:
		return err
	case <-timer.C:
		why = b.busy(fmt.Sprintf("no room for more within %s", patience))
	case <-ctx.Done():
		why = context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, w); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		return why
	}
	return <-w.done // decided while the timer fired
}

// release gives back everything.
func (l *lease) release() {
	b := l.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.held == 0 {
		return
	}
	b.used -= l.held
	b.gauge.Sub(float64(l.held))
	b.holders--
	l.held = 0
	b.settle()
}

func (b *budget) fits(l *lease, n int64) bool {
	if l.held+n <= smallBody {
		return b.used+n <= b.limit+smallReserve
	}
	return b.used+n <= b.limit
}

func (b *budget) grant(l *lease, n int64) {
	if l.held == 0 && n > 0 {
		b.holders++
	}
	l.held += n
	b.used += n
	b.gauge.Add(float64(n))
}

// settle serves waiters from the oldest on, and refuses the youngest holder when nobody else can make room.
func (b *budget) settle() {
	for len(b.waiting) > 0 && b.fits(b.waiting[0].lease, b.waiting[0].want) {
		w := b.waiting[0]
		b.waiting = b.waiting[1:]
		b.grant(w.lease, w.want)
		w.done <- nil
	}
	holding, youngest := 0, -1
	for i, w := range b.waiting {
		if w.lease.held > 0 {
			holding, youngest = holding+1, i
		}
	}
	if holding == b.holders && youngest >= 0 {
		w := b.waiting[youngest]
		b.waiting = slices.Delete(b.waiting, youngest, youngest+1)
		w.done <- b.busy("requests that came earlier need the room")
	}
}

func (b *budget) busy(why string) error {
	return fmt.Errorf("%w: request bodies fill the %d bytes set aside for them, %s", ErrBusy, b.limit, why)
}

// A countedBody is a request's body under the limits. It is used by one goroutine at a time.
type countedBody struct {
	body     io.ReadCloser
	ctx      context.Context
	lease    *lease
	declared int64 // -1 when unknown
	limit    int64
	patience time.Duration
	timeout  time.Duration // for the error's text
	refusals *prometheus.CounterVec
	hangUp   func() // ends the connection with the answer

	read int64
	err  error // sticky
}

func (b *countedBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.declared > b.limit {
		return 0, b.refuse(bodyTooLarge, fmt.Errorf("%w: %d bytes declared, the limit is %d", ErrBodyTooLarge, b.declared, b.limit))
	}
	n, err := b.body.Read(p[:min(len(p), readStep)])
	b.read += int64(n)
	if b.read > b.limit {
		return 0, b.refuse(bodyTooLarge, fmt.Errorf("%w: more than the limit of %d bytes", ErrBodyTooLarge, b.limit))
	}
	if n > 0 {
		if err := b.lease.grow(b.ctx, int64(n), b.patience); errors.Is(err, ErrBusy) {
			return 0, b.refuse(bodyBusy, err)
		} else if err != nil {
			b.err = err
			return 0, err
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, b.refuse(bodyTimeout, fmt.Errorf("%w: %d bytes came within %s", ErrBodyTimeout, b.read, b.timeout))
	}
	b.err = err
	return n, err
}

func (b *countedBody) refuse(reason string, err error) error {
	b.refusals.WithLabelValues(reason).Inc()
	b.err = err
	b.hangUp()
	return err
}

func (b *countedBody) Close() error { return b.body.Close() }

// hasBody reports whether there may be something to read.
func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// limitBody returns the request with its body under the limits, and a function that gives back what the body held. The
// request is a copy, since the http.Server looks at its own to know what is left to read.
func (s *Server) limitBody(w http.ResponseWriter, r *http.Request) (limited *http.Request, release func()) {
	if !hasBody(r) {
		return r, func() {}
	}
	lease := s.budget.lease()
	limited = r.WithContext(r.Context())
	limited.Body = &countedBody{
		body: r.Body, ctx: r.Context(), lease: lease, declared: r.ContentLength,
		limit: s.opts.MaxBodyBytes, patience: s.opts.BusyTimeout, timeout: s.opts.BodyTimeout,
		refusals: s.metrics.bodyRefusals,
		hangUp:   func() { hangUp(w, r) },
	}
	return limited, lease.release
}

// lingerTimeout is how long the rest of a body that nobody wants is taken in after the answer.
const lingerTimeout = time.Second

// hangUp ends a connection with its answer. Otherwise the http.Server reads on before it answers, to find the next
// request. It still does so after the answer, for a while: to close at once would reset the connection, and the answer
// might be lost with it.
func hangUp(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 {
		return // there a request is not in the way of the next
	}
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingerTimeout))
}
