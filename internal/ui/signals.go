package ui

import (
	"slices"
	"time"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// ranges is how many ranges of ages are counted.
const ranges = 20

// signals returns the signals of the configuration.
func (s *Source) signals() Signals {
	all := Signals{Signals: []Signal{}}
	c, view := s.Config(), s.View()
	for _, status := range s.Signals() {
		x := Signal{Signal: status, Ages: make([]int, ranges), Readers: []Reader{}}
		about := policy.SignalAbout("")
		for i := range c.Profiles {
			for _, q := range c.Profiles[i].Policies {
				for _, use := range q.Inputs().Signals {
					if use.Name != status.Name {
						continue
					}
					about = use.About
					r := Reader{Profile: c.Profiles[i].Path, Policy: q.Name}
					_ = q.Config.At("whenStale").Decode(&r.WhenStale) // "" if the policy has no such field
					if !slices.Contains(x.Readers, r) {
						x.Readers = append(x.Readers, r)
					}
				}
			}
		}
		if signal := view.Signal(status.Name); signal != nil {
			x.count(signal)
			if about == policy.AboutNodes {
				for n := range view.All() {
					if signal.Get(n.Name) == (snapshot.Value{}) {
						x.Missing++
					}
				}
			}
		}
		all.Signals = append(all.Signals, x)
	}
	return all
}

// count counts the values by age.
func (x *Signal) count(signal *snapshot.Signal) {
	var times []time.Time
	for _, v := range signal.All() {
		if !v.At.IsZero() {
			times = append(times, v.At)
		}
	}
	if len(times) == 0 {
		return
	}
	x.Oldest = slices.MinFunc(times, time.Time.Compare)
	newest := slices.MaxFunc(times, time.Time.Compare)
	whole := newest.Sub(x.Oldest)
	for _, at := range times {
		i := 0
		if whole > 0 {
			i = min(ranges-1, int(int64(newest.Sub(at))*ranges/int64(whole)))
		}
		x.Ages[i]++
	}
}
