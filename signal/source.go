package signal

import (
	"context"
	"errors"
	"time"
)

// Source reads one signal. One goroutine at a time uses it. A Source that holds
// resources is also an io.Closer; it is closed after its last use.
type Source interface {
	// Read returns all current values. It returns soon after ctx ends, and holds no more
	// in memory than limits allow, whatever the source sends. After an error, the values
	// read before stay in force. Operators read the text of the error: it holds no
	// secret.
	Read(ctx context.Context, limits Limits) ([]Sample, error)
}

// Changer is implemented by a Source that knows when there is something new.
type Changer interface {
	// Changed is sent to when the source should be read without waiting for the next
	// time. It is never closed.
	Changed() <-chan struct{}
}

// Limits bound one reading.
type Limits struct {
	// Values is how many samples there may be: more is an error, [ErrTooMany].
	Values int
	// Bytes is how long a document may be: more is an error, [ErrTooLong].
	Bytes int64
}

// MaxBytes is how long a document may be.
const MaxBytes = 32 << 20

var (
	// ErrTooMany says that a reading has more values than it may have.
	ErrTooMany = errors.New("more values than maxValues allows")
	// ErrTooLong says that a document is longer than it may be.
	ErrTooLong = errors.New("the document is too long")
)

// Sample is one number.
type Sample struct {
	// Key is the name of a node, or what else the number is about; "" if it stands
	// alone.
	Key    string
	Number float64
	// At is when the number was true, by the source's word; zero: when the reading
	// began.
	At time.Time
}
