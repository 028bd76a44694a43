package equality

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/snapshot"
)

// maxAge is that of all signals. Stale values in a world are older.
const maxAge = time.Hour

// feeds are the signals of a world as sources return them. The zero value has none.
type feeds struct {
	mu     sync.Mutex
	byName map[string]*feed
}

// feed is one signal. It implements signal.Source and signal.Changer.
type feed struct {
	mu      sync.Mutex
	latest  *snapshot.Signal
	samples []signal.Sample
	changed chan struct{} // capacity 1
}

// source is the type of source that configurations of cases use.
func (f *feeds) source() signal.Type {
	type settings struct {
		// Signal is the name of the world's signal, and About is the kind of its keys.
		Signal string             `json:"signal"`
		About  policy.SignalAbout `json:"about"`
	}
	return signal.TypeOf("world", func() settings { return settings{} }, func(s settings) (signal.Spec, error) {
		return signal.Spec{About: s.About, Open: func(*rest.Config) (signal.Source, error) { return f.of(s.Signal), nil }}, nil
	})
}

func (f *feeds) of(name string) *feed {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byName == nil {
		f.byName = map[string]*feed{}
	}
	if f.byName[name] == nil {
		f.byName[name] = &feed{changed: make(chan struct{}, 1)}
	}
	return f.byName[name]
}

// set makes the source return the numbers of the signal.
func (f *feeds) set(s *snapshot.Signal) {
	to := f.of(s.Name())
	to.mu.Lock()
	defer to.mu.Unlock()
	if to.latest == s {
		return
	}
	first := to.latest == nil
	to.latest, to.samples = s, nil
	for key, v := range s.All() {
		to.samples = append(to.samples, signal.Sample{Key: key, Number: v.Number, At: v.At})
	}
	if first {
		return // is read at the start; a change would delay that
	}
	select {
	case to.changed <- struct{}{}:
	default:
	}
}

func (f *feed) Read(context.Context, signal.Limits) ([]signal.Sample, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.samples, nil
}

func (f *feed) Changed() <-chan struct{} { return f.changed }
