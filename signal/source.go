package signal

import (
	"context"
	"errors"
	"time"
)

// Source reads one signal. One goroutine at a time uses it. A Source that holds
// resources is also an io.Closer; it is closed after its last use.
type Source interface {
	// Read returns all current values. It returns soon after ctx ends, and takes no more memory
	// than limits permit, whatever the source sends. After an error, the previous values stay in
	// use. The text of the error is for operators: it contains no secret.
	Read(ctx context.Context, limits Limits) ([]Sample, error)
}

// Changer is implemented by a Source that detects changes.
type Changer interface {
	// Changed receives a value when the source should be read before the interval has passed. It is
	// never closed.
	Changed() <-chan struct{}
}

// Limits bound one read.
type Limits struct {
	// Values is the maximum number of samples: more is an error, [ErrTooMany].
	Values int
	// Bytes is the maximum length of a document: more is an error, [ErrTooLong].
	Bytes int64
}

// MaxBytes is the maximum length of a document.
const MaxBytes = 32 << 20

var (
	// ErrTooMany means that a read has too many values.
	ErrTooMany = errors.New("more values than maxValues allows")
	// ErrTooLong means that a document is too long.
	ErrTooLong = errors.New("the document is too long")
)

// Sample is one number.
type Sample struct {
	// Key is the name of a node, or another key of the number; "" for a single number.
	Key    string
	Number float64
	// At is the time of the number, as reported by the source; zero: when the read began.
	At time.Time
}
