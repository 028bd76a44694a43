package server

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// A room is a limited amount of something that requests need: memory, connections. Callers share it by one rule:
//
//   - While no other caller asks, a caller may hold all of it.
//   - If there is not enough, the caller that holds most yields. Of its holders, the one that has waited longest for its client ends. Another
//     caller yields as long as it holds at least what the asking caller would hold. A caller that holds no more than its share, and the asking
//     caller itself, yield only what has waited for at least slow.
//   - Of requests that wait, the first is that of the caller that used least lately. Of one caller, the oldest is first. What is used counts
//     as amount times seconds, and half of it is forgotten in each halfLife.
//   - A caller that rests (see [room.rest]) gets nothing until its rest is over.
//
// So a caller gets its share, the size divided by the number of callers that hold something or wait, whatever others do. It gets more if
// others need less.
//
// Create one with newRoom. It is safe for concurrent use.
type room struct {
	use  string // for errors
	size int64
	slow time.Duration

	mu      sync.Mutex
	free    int64
	ending  int64 // of holds whose holders end soon
	callers map[string]*caller
	served  time.Time // when serveAndUnlock last ran
	swept   time.Time // when callers were last forgotten
}

// halfLife is about as long as the longest uses last: of what a caller used, an eighth counts after three times as long.
const halfLife = 5 * time.Second

// forgetAfter is when a caller that holds nothing is forgotten. What it used counts less than a thousandth then.
const forgetAfter = 10 * halfLife

// A holder holds room for a client that may be slow.
type holder interface {
	// waits returns for how long the holder has waited for its client. It is negative if the holder does not wait for it. It is called
	// with the room's mutex locked.
	waits(now time.Time) time.Duration
	// end makes the holder release what it holds, now or soon.
	end()
}

// A caller is what one caller holds and used. The room's mutex guards it.
type caller struct {
	held, ending int64
	used         float64 // until since
	since        time.Time
	rests        time.Time // until then
	holds        []*hold
	waiting      []*hold // the oldest first
}

// A hold is an amount that a request holds or waits for. The room's mutex guards it.
type hold struct {
	room   *room
	caller *caller
	amount int64
	holder holder // nil: it does not wait for a client
	since  time.Time
	index  int // in caller.holds
	ending bool
	ready  chan struct{} // closed when the request holds it; nil if it did not wait
}

// newRoom returns a room with everything free. use names what it holds, for errors.
func newRoom(use string, size int64) *room { return &room{use: use, size: size, free: size} }

// takeFree takes the amount, or all of the room if that is less, for the caller if it is free and no request waits.
func (r *room) takeFree(h *hold, by string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.takeIfFree(h, by, time.Now())
}

func (r *room) takeIfFree(h *hold, by string, now time.Time) bool {
	r.enter(h, by)
	if h.amount > r.free || h.caller.rests.After(now) || r.first(now) != nil {
		return false
	}
	r.grant(h)
	return true
}

// take is takeFree, but waits until ctx ends. It returns false then.
func (r *room) take(ctx context.Context, h *hold, by string) bool {
	r.mu.Lock()
	r.enter(h, by)
	h.ready = make(chan struct{})
	h.caller.waiting = append(h.caller.waiting, h)
	r.serveAndUnlock()
	ticker := time.NewTicker(lookAgain)
	defer ticker.Stop()
	for {
		select {
		case <-h.ready:
			return true
		case <-ctx.Done():
			return !r.leave(h)
		case <-ticker.C: // a holder may wait for its client by now
			r.mu.Lock()
			if time.Since(r.served) < lookAgain/2 { // for another request
				r.mu.Unlock()
				continue
			}
			r.serveAndUnlock()
		}
	}
}

// takeOrYield takes the amount for the caller if it is free. Otherwise it returns the holders that yield: when they have ended, try again.
// It does not wait.
func (r *room) takeOrYield(h *hold, by string) (ok bool, yield []holder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.takeIfFree(h, by, now) {
		return true, nil
	}
	return false, r.makeRoom(h, now)
}

// lookAgain is the time between two looks for holders that yield.
const lookAgain = 50 * time.Millisecond

// leave ends the waiting of a request. It returns false if the request holds the amount by now.
func (r *room) leave(h *hold) bool {
	r.mu.Lock()
	defer r.serveAndUnlock() // others may have waited behind it
	i := slices.Index(h.caller.waiting, h)
	if i >= 0 {
		h.caller.waiting = slices.Delete(h.caller.waiting, i, i+1)
	}
	return i >= 0
}

// release returns what a request holds.
func (r *room) release(h *hold) {
	r.mu.Lock()
	c := h.caller
	c.account(time.Now())
	c.held -= h.amount
	r.free += h.amount
	if h.ending {
		c.ending -= h.amount
		r.ending -= h.amount
	}
	last := c.holds[len(c.holds)-1]
	c.holds[h.index], last.index = last, h.index
	c.holds = c.holds[:len(c.holds)-1]
	r.serveAndUnlock()
}

// maxRest is less than the time for which a request waits for a room, so that a caller with one request at a time loses none.
const maxRest = time.Second

// rest makes the caller of a hold rest for d, after the rest that it already has before it, but not beyond maxRest from now on. It returns
// for how long the caller rests now.
func (r *room) rest(h *hold, d time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := max(time.Until(h.caller.rests), 0)
	d = min(before+d, maxRest)
	h.caller.rests = time.Now().Add(d)
	return d
}

// usedByOthers reports whether a caller other than this one holds some of the room, or has taken or released some since then.
func (r *room) usedByOthers(by string, since time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, c := range r.callers {
		if name != by && (c.held > 0 || c.since.After(since)) {
			return true
		}
	}
	return false
}

// enter sets the caller of a new hold.
func (r *room) enter(h *hold, by string) {
	h.room, h.amount = r, min(h.amount, r.size)
	if h.caller = r.callers[by]; h.caller != nil {
		return
	}
	now := time.Now()
	if r.callers == nil {
		r.callers = map[string]*caller{}
	}
	if now.Sub(r.swept) > halfLife {
		r.swept = now
		for name, c := range r.callers {
			if len(c.holds)+len(c.waiting) == 0 && now.Sub(c.since) > forgetAfter {
				delete(r.callers, name)
			}
		}
	}
	h.caller = &caller{since: now}
	r.callers[by] = h.caller
}

func (r *room) grant(h *hold) {
	c := h.caller
	h.since = time.Now()
	c.account(h.since)
	c.held += h.amount
	r.free -= h.amount
	h.index = len(c.holds)
	c.holds = append(c.holds, h)
}

// account brings what the caller used up to date.
func (c *caller) account(now time.Time) {
	c.used, c.since = c.usedUntil(now), now
}

func (c *caller) usedUntil(now time.Time) float64 {
	passed := now.Sub(c.since)
	return c.used*math.Exp2(-passed.Seconds()/halfLife.Seconds()) + float64(c.held)*passed.Seconds()
}

// first returns the request that is served next, or nil.
func (r *room) first(now time.Time) *hold {
	var found *caller
	least := math.Inf(1)
	for _, c := range r.callers {
		if len(c.waiting) > 0 && !c.rests.After(now) {
			if used := c.usedUntil(now); used < least {
				found, least = c, used
			}
		}
	}
	if found == nil {
		return nil
	}
	return found.waiting[0]
}

// serveAndUnlock serves requests that wait, unlocks the mutex, and ends the holders that yield to the first that still waits.
func (r *room) serveAndUnlock() {
	r.served = time.Now()
	var yield []holder
	for {
		h := r.first(r.served)
		if h == nil {
			break
		}
		if h.amount > r.free {
			yield = r.makeRoom(h, r.served)
			break
		}
		h.caller.waiting = slices.Delete(h.caller.waiting, 0, 1)
		r.grant(h)
		close(h.ready)
	}
	r.mu.Unlock()
	for _, holder := range yield {
		holder.end()
	}
}

// makeRoom returns the holders that yield to h, besides those that end already.
func (r *room) makeRoom(h *hold, now time.Time) (yield []holder) {
	for r.free+r.ending < h.amount {
		found := r.yielding(h, now)
		if found == nil {
			break
		}
		found.ending = true
		found.caller.ending += found.amount
		r.ending += found.amount
		yield = append(yield, found.holder)
	}
	return yield
}

// yielding returns the hold that yields to h next, or nil.
func (r *room) yielding(h *hold, now time.Time) (found *hold) {
	var most, active int64
	for _, c := range r.callers {
		if len(c.holds) > 0 || len(c.waiting) > 0 || c == h.caller {
			active++
		}
	}
	var used float64
	for _, c := range r.callers {
		left := c.held - c.ending
		if c != h.caller && left < h.caller.held+h.amount {
			continue
		}
		least := r.slow
		if c != h.caller && left > r.size/active {
			least = 0
		}
		if lately := c.usedUntil(now); left > most || left == most && lately > used {
			if candidate := c.longest(now, least); candidate != nil {
				found, most, used = candidate, left, lately
			}
		}
	}
	return found
}

// longest returns the hold whose holder has waited longest for its client, for at least this long; nil if there is none.
func (c *caller) longest(now time.Time, least time.Duration) (found *hold) {
	for _, h := range c.holds {
		if h.ending || h.holder == nil {
			continue
		}
		if waited := h.holder.waits(now); waited >= least {
			found, least = h, waited
		}
	}
	return found
}
