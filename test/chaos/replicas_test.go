package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"outboard.dev/outboard/test/stage"
)

// Points around a Binding at which a replica can be killed or stopped: before the API server gets
// a request, and after it has responded, while the replica does not have the response. Between these
// points a replica changes nothing outside its process.
var points = []string{"before-ledger-write", "after-ledger-write", "before-binding", "after-binding"}

// rare points occur only if the API server rejects a Binding, or the replica releases an allocation
// because its pod stays unbound.
var rare = []string{"before-release", "after-release", "before-touch", "after-touch"}

const (
	kill = "kill"
	stop = "stop"
)

// fault is one fault of one replica. Without a point it happens at any moment.
type fault struct {
	action, point string
	optional      bool // skip it if the point is not reached in time
}

func (f fault) String() string {
	if f.point == "" {
		return f.action + " at random"
	}
	return f.action + " " + f.point
}

// plan is the faults of replicas, in order.
type plan struct {
	mu       sync.Mutex
	todo     []fault
	underway int
	happened map[string]int
}

func newPlan(s scale) *plan {
	p := &plan{happened: map[string]int{}}
	for range s.randomKills {
		p.todo = append(p.todo, fault{action: kill})
	}
	for range s.killsPerPoint {
		for _, point := range points {
			p.todo = append(p.todo, fault{action: kill, point: point})
		}
	}
	for range s.killsPerRarePoint {
		for _, point := range rare {
			p.todo = append(p.todo, fault{action: kill, point: point, optional: true})
		}
	}
	for range s.freezes {
		for _, point := range []string{"after-ledger-write", "before-binding"} {
			p.todo = append(p.todo, fault{action: stop, point: point})
		}
	}
	rand.Shuffle(len(p.todo), func(i, j int) { p.todo[i], p.todo[j] = p.todo[j], p.todo[i] })
	return p
}

func (p *plan) next() (f fault, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.todo) == 0 {
		return fault{}, false
	}
	f, p.todo = p.todo[0], p.todo[1:]
	p.underway++
	return f, true
}

// end records the result of a fault. A required fault that has not happened is tried again.
func (p *plan) end(f fault, happened bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.underway--
	if happened {
		p.happened[f.String()]++
	} else if !f.optional {
		p.todo = append(p.todo, f)
	}
}

// count counts events outside the plan.
func (p *plan) count(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.happened[what]++
}

func (p *plan) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.todo) == 0 && p.underway == 0
}

// status returns one line.
func (p *plan) status() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	kills := 0
	for what, n := range p.happened {
		if strings.HasPrefix(what, kill) {
			kills += n
		}
	}
	return fmt.Sprintf("%d kills, %d faults to come", kills, len(p.todo)+p.underway)
}

// report returns one line for each kind of event.
func (p *plan) report() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var text strings.Builder
	for _, what := range slices.Sorted(maps.Keys(p.happened)) {
		fmt.Fprintf(&text, "%5d  %s\n", p.happened[what], what)
	}
	return text.String()
}

// replica is one `outboard serve`.
type replica struct {
	*stage.Outboard
	address string      // on which it serves
	api     *apiServer  // what it connects to
	network *forwarder  // between it and api
	away    atomic.Bool // it is not ready, so a Service sends it no calls
}

// reachTime is the timeout for a point. If the point needs an old allocation, the allocation is old after the
// replica has seen it for the reclaim time, and the replica checks every 5 s.
const reachTime = 8 * time.Second

// torment applies the planned faults to the replica, until none is left. The replica runs before
// and after.
func (r *replica) torment(ctx context.Context, p *plan, s scale) error {
	for {
		f, ok := p.next()
		if !ok {
			if p.ended() {
				return nil
			}
			select { // a fault of another replica may have to be tried again
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		if err := r.pause(ctx, 300*time.Millisecond+rand.N(s.calm)); err != nil {
			return err
		}
		happened, err := r.suffer(ctx, p, f, s)
		p.end(f, happened)
		if err != nil {
			return err
		}
	}
}

// suffer applies one fault, and starts the replica again.
func (r *replica) suffer(ctx context.Context, p *plan, f fault, s scale) (happened bool, err error) {
	if r.hasEnded() {
		return false, r.crash()
	}
	if f.point == "" {
		r.Kill()
		return true, r.start(ctx)
	}
	times, patience := 1+rand.IntN(4), reachTime
	if f.optional {
		times, patience = 1, reachTime+s.reclaimAfter+10*time.Second
	}
	reached := r.api.arm(f.point, times)
	select {
	case <-reached.happens:
	case <-r.Done():
		return false, r.crash()
	case <-time.After(patience):
		r.api.disarm()
		reached.resume()
		return false, nil
	}
	if f.action == stop {
		if err := r.freeze(ctx, reached, s.freeze); err != nil {
			return false, err
		}
	}
	r.Kill()
	if f.action == kill {
		reached.drop()
	}
	return true, r.start(ctx)
}

// freeze stops the replica while the trap holds its request, and continues both after a while.
func (r *replica) freeze(ctx context.Context, held *trap, freeze time.Duration) error {
	if err := r.Pause(); err != nil {
		return err
	}
	// With readiness probes, a Service notices after some seconds.
	noticed := min(freeze/2, 5*time.Second)
	if err := r.pause(ctx, noticed); err != nil {
		return err
	}
	r.away.Store(true)
	err := r.pause(ctx, freeze-noticed)
	r.away.Store(false)
	if err != nil {
		return err
	}
	if err := r.Continue(); err != nil {
		return err
	}
	held.resume()
	if err := r.pause(ctx, 2*time.Second); err != nil { // it finishes its current work
		return err
	}
	if r.hasEnded() {
		return r.crash()
	}
	return nil
}

// start starts the replica again.
func (r *replica) start(ctx context.Context) error {
	r.away.Store(true)
	err := r.Start(ctx)
	r.away.Store(err != nil)
	return err
}

func (r *replica) hasEnded() bool {
	select {
	case <-r.Done():
		return true
	default:
		return false
	}
}

func (r *replica) crash() error {
	log := r.Log()
	return errors.New("a replica ended by itself: " + log[max(0, len(log)-4000):])
}

func (r *replica) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// disturb delays and interrupts the network between the replica and the API server, until ctx ends.
func (r *replica) disturb(ctx context.Context, p *plan, longest time.Duration) {
	for r.pause(ctx, time.Second+rand.N(4*time.Second)) == nil {
		d := rand.N(longest)
		if rand.IntN(3) == 0 {
			p.count("answers of the API server lost")
			r.network.HoldAndCut(d)
		} else {
			p.count("watches and answers late")
			r.network.Hold(d)
		}
	}
}
