package ui

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"outboard.dev/outboard/internal/decision"
)

// callWindow is how long a call counts: one that failed long ago says nothing about now.
const callWindow = time.Minute

// lately compares what a process has counted with what it had counted a minute before.
type lately struct{ kept []counted }

// counted is what was counted at some time.
type counted struct {
	at    time.Time
	calls map[verbOf]Calls
}

type verbOf struct {
	profile string
	verb    decision.Verb
}

// subtract makes the counts of the replica, except Total, those of the last minute, or since the
// start.
func (l *lately) subtract(r *Replica) {
	now := counted{r.Now, map[verbOf]Calls{}}
	for _, p := range r.Profiles {
		for _, c := range p.Calls {
			now.calls[verbOf{p.Path, c.Verb}] = c
		}
	}
	l.kept = append(slices.DeleteFunc(l.kept, func(c counted) bool { return c.at.After(r.Now) || r.Now.Sub(c.at) > 2*callWindow }), now)
	for len(l.kept) > 1 && r.Now.Sub(l.kept[1].at) >= callWindow {
		l.kept = l.kept[1:]
	}
	before := l.kept[0]
	r.Seconds = min(int(r.Now.Sub(before.at).Seconds()), int(callWindow.Seconds()))
	for i := range r.Profiles {
		for j := range r.Profiles[i].Calls {
			c := &r.Profiles[i].Calls[j]
			was := before.calls[verbOf{r.Profiles[i].Path, c.Verb}]
			c.Calls -= was.Calls
			c.Failed -= was.Failed
			c.Durations = c.Durations.Since(was.Durations)
		}
	}
}

// sumCalls sets Profiles and Over, and adds the calls that failed to the troubles.
func (o *Overview) sumCalls() {
	o.Profiles, o.Over = []Profile{}, "in the last minute"
	seconds := 0
	for i := range o.Replicas {
		seconds = max(seconds, o.Replicas[i].Seconds)
		for j := range o.Replicas[i].Profiles {
			o.addCalls(&o.Replicas[i].Profiles[j])
		}
	}
	if seconds < int(callWindow.Seconds()) {
		o.Over = fmt.Sprintf("in the last %d s", seconds)
	}
	for i := range o.Profiles {
		p := &o.Profiles[i]
		for j := range p.Calls {
			c := &p.Calls[j]
			c.P50, c.P99, c.Durations = c.quantile(0.5), c.quantile(0.99), nil
			if c.Failed > 0 {
				o.add(Trouble{Text: fmt.Sprintf("%d of %s of profile %s failed %s.", c.Failed, plural(c.Calls, string(c.Verb)+" call"), p.Path, o.Over)})
			}
		}
	}
}

// addCalls adds the profile of one replica.
func (o *Overview) addCalls(p *Profile) {
	at := slices.IndexFunc(o.Profiles, func(sum Profile) bool { return sum.Path == p.Path })
	if at < 0 {
		at = len(o.Profiles)
		o.Profiles = append(o.Profiles, Profile{Path: p.Path, Schedulers: []string{}, Policies: p.Policies, Calls: []Calls{}})
	}
	sum := &o.Profiles[at]
	sum.Schedulers = append(sum.Schedulers, p.Schedulers...)
	slices.Sort(sum.Schedulers)
	sum.Schedulers = slices.Compact(sum.Schedulers)
	for _, c := range p.Calls {
		i := slices.IndexFunc(sum.Calls, func(s Calls) bool { return s.Verb == c.Verb })
		if i < 0 {
			i = len(sum.Calls)
			sum.Calls = append(sum.Calls, Calls{Verb: c.Verb})
		}
		sum.Calls[i].add(&c)
	}
}

func (c *Calls) add(other *Calls) {
	c.Total += other.Total
	c.Calls += other.Calls
	c.Failed += other.Failed
	if c.Last.Before(other.Last) {
		c.Last = other.Last
	}
	c.Durations = c.Durations.Plus(other.Durations)
}

// quantile estimates a quantile of the durations, to two digits; "" without calls.
func (c *Calls) quantile(q float64) string {
	if c.Calls == 0 {
		return ""
	}
	return shortened(c.Durations.Quantile(q, c.Calls))
}

// shortened returns seconds with two digits, such as "1.3 ms".
func shortened(seconds float64) string {
	for _, unit := range []struct {
		name string
		size float64
	}{{"s", 1}, {"ms", 1e-3}} {
		if seconds >= unit.size {
			return strconv.FormatFloat(seconds/unit.size, 'g', 2, 64) + " " + unit.name
		}
	}
	return fmt.Sprintf("%.0f µs", seconds*1e6)
}
