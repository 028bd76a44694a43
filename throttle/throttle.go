// Package throttle keeps callers who can cause log records at will from filling the log.
package throttle

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// Burst is how many records of one kind are written in a Period. Then one record says how many were left out.
	Burst  = 10
	Period = 10 * time.Second
	// maxKinds bounds the kinds that are told apart at a time. The rest is one kind.
	maxKinds = 100
)

// Log writes records to a slog.Logger. It may be used by any number of goroutines. The zero value is ready.
type Log struct {
	mu    sync.Mutex
	kinds map[string]*kind
}

// kind is what is known of the records of one kind.
type kind struct {
	until         time.Time // when the period ends
	used, leftOut int
}

// Log writes the record, or counts it.
func (l *Log) Log(logger *slog.Logger, level slog.Level, of, msg string, args ...any) {
	if logger.Enabled(context.Background(), level) && l.admit(logger, level, of, msg) {
		logger.Log(context.Background(), level, msg, args...)
	}
}

// admit says whether the record is to be written. If it is the first that is not, admit has the others counted with it.
func (l *Log) admit(logger *slog.Logger, level slog.Level, of, msg string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	k := l.kind(of, now)
	if !now.Before(k.until) {
		k.until, k.used = now.Add(Period), 0
	}
	if k.used < Burst {
		k.used++
		return true
	}
	if k.leftOut++; k.leftOut == 1 {
		time.AfterFunc(k.until.Sub(now), func() {
			l.mu.Lock()
			n := k.leftOut
			k.leftOut = 0
			l.mu.Unlock()
			logger.Log(context.Background(), level, msg, "suppressed", n)
		})
	}
	return false
}

// kind returns the kind with the name. mu is held.
func (l *Log) kind(name string, now time.Time) *kind {
	if l.kinds == nil {
		l.kinds = map[string]*kind{}
	}
	if len(l.kinds) >= maxKinds && l.kinds[name] == nil {
		for other, k := range l.kinds {
			if !now.Before(k.until) && k.leftOut == 0 {
				delete(l.kinds, other)
			}
		}
		if len(l.kinds) >= maxKinds {
			name = ""
		}
	}
	k := l.kinds[name]
	if k == nil {
		k = &kind{}
		l.kinds[name] = k
	}
	return k
}
