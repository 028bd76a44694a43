// Package throttle limits the log records that clients can cause, and logs how many it suppressed.
package throttle

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// Burst is how many records of one kind a Log writes in a Period. If it suppresses more, one
	// record at the end of the Period has their number.
	Burst  = 10
	Period = 10 * time.Second
	// maxKinds bounds the kinds at a time. Records of further kinds count as one kind.
	maxKinds = 100
)

// Log writes records to a slog.Logger. The zero value is ready. Its methods may be called
// concurrently.
type Log struct {
	mu      sync.Mutex
	records map[string]int // of each kind in its current Period, which begins with the first of them
}

// Log writes the record, or counts it as suppressed. of is its kind.
func (l *Log) Log(logger *slog.Logger, level slog.Level, of, msg string, args ...any) {
	if logger.Enabled(context.Background(), level) && l.admit(logger, level, of, msg) {
		logger.Log(context.Background(), level, msg, args...)
	}
}

// admit reports whether to write the record. The first record of a kind schedules the end of its
// Period.
func (l *Log) admit(logger *slog.Logger, level slog.Level, of, msg string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records == nil {
		l.records = map[string]int{}
	}
	if len(l.records) >= maxKinds && l.records[of] == 0 {
		of = ""
	}
	if l.records[of]++; l.records[of] == 1 {
		time.AfterFunc(Period, func() {
			l.mu.Lock()
			suppressed := l.records[of] - Burst
			delete(l.records, of)
			l.mu.Unlock()
			if suppressed > 0 {
				logger.Log(context.Background(), level, msg, "suppressed", suppressed)
			}
		})
	}
	return l.records[of] <= Burst
}
