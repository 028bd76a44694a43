// Package throttle limits the log records that clients can cause, and logs how many it suppressed.
package throttle

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// Burst is how many records of one kind a Log writes in a Period. If it suppresses more, one record at the end of the
	// Period has their number.
	Burst  = 10
	Period = 10 * time.Second
	// maxKinds bounds the kinds at a time. Records of further kinds count as one kind.
	maxKinds = 100
)

// Log writes records to a slog.Logger. The zero value is ready. Its methods may be called concurrently.
type Log struct {
	mu    sync.Mutex
	kinds map[string]*kind
}

// kind counts the records of one kind.
type kind struct {
	until         time.Time // when the period ends
	used, leftOut int
}

// Log writes the record, or counts it as suppressed. of is its kind.
func (l *Log) Log(logger *slog.Logger, level slog.Level, of, msg string, args ...any) {
	if logger.Enabled(context.Background(), level) && l.admit(logger, level, of, msg) {
		logger.Log(context.Background(), level, msg, args...)
	}
}

// admit reports whether to write the record. For the first suppressed record, admit schedules the one with the number.
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

// kind returns the kind with the name. mu must be held.
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
