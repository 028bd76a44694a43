package ui

import (
	"slices"
	"time"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// signals returns the signals of the configuration.
func (s *Source) signals() Signals {
	all := Signals{Signals: []Signal{}}
	c, view := s.Config(), s.View()
	for _, status := range s.Signals() {
		x := Signal{Signal: status, Readers: []Reader{}}
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
			x.Oldest = oldest(signal)
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

// oldest returns the time of the oldest value; zero if there is none.
func oldest(signal *snapshot.Signal) (first time.Time) {
	for _, v := range signal.All() {
		if !v.At.IsZero() && (first.IsZero() || v.At.Before(first)) {
			first = v.At
		}
	}
	return first
}
