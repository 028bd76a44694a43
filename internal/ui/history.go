package ui

import (
	"maps"
	"slices"
	"time"
)

const (
	historyStep   = 2 * time.Minute
	historyLength = int(24 * time.Hour / historyStep)
	// maxCharts bounds the resources: whoever may create ledgers chooses their names.
	maxCharts = 4
)

// history keeps numbers of a replica for 24 hours.
type history struct {
	last    time.Time            // when the latest point began, a multiple of historyStep
	points  []map[string]float64 // by title, one for each step, nil for a step that was slept through
	counted [2]int64             // calls and failed calls since the start
}

// add adds the numbers of the replica, whose calls are counted since its start, and of the resources,
// unless the step has numbers already.
func (h *history) add(r *Replica, all map[string]*used) {
	at := r.Now.Truncate(historyStep)
	switch missed := int(at.Sub(h.last)/historyStep) - 1; {
	case at.Equal(h.last):
		return
	case at.Before(h.last) || missed >= historyLength: // another clock, or the first time
		h.points = nil
	default:
		h.points = append(h.points, make([]map[string]float64, missed)...)
	}
	was := h.counted
	h.last, h.counted = at, [2]int64{}
	for _, p := range r.Profiles {
		for _, c := range p.Calls {
			h.counted[0] += c.Calls
			h.counted[1] += c.Failed
		}
	}
	now := map[string]float64{
		"Waiting pods": float64(r.Waiting),
		"Calls":        float64(h.counted[0] - was[0]),
		"Failed calls": float64(h.counted[1] - was[1]),
	}
	names := slices.Sorted(maps.Keys(all))
	for _, name := range names[:min(len(names), maxCharts)] {
		if u := all[name]; u.capacity > 0 {
			now[name+": % allocated"] = 100 * u.allocated / u.capacity
			now[name+": % free and too little"] = 100 * u.unusable / u.capacity
		}
	}
	h.points = append(h.points, now)
	h.points = h.points[max(0, len(h.points)-historyLength):]
}

// of returns what has a value now, of the replica with the name.
func (h *history) of(name string) History {
	all := History{Replica: name, Last: h.last, Seconds: int(historyStep.Seconds()), Series: []Series{}}
	if len(h.points) == 0 {
		return all
	}
	for _, title := range slices.Sorted(maps.Keys(h.points[len(h.points)-1])) {
		s := Series{Title: title, Points: make([]float64, len(h.points))}
		for i, p := range h.points {
			value, ok := p[title]
			if s.Points[i] = value; !ok {
				s.Points[i] = -1
			}
		}
		all.Series = append(all.Series, s)
	}
	return all
}
