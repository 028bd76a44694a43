package signal

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// Reader returns the document that r reads. If it has more than Bytes, Read returns [ErrTooLong]
// without its end.
func (l Limits) Reader(r io.Reader) io.Reader { return &boundedReader{r, l.Bytes} }

// boundedReader reads at most left bytes.
type boundedReader struct {
	from io.Reader
	left int64
}

// Read implements io.Reader.
func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, ErrTooLong
	}
	// One byte more than the limit distinguishes a document of that length from a longer one.
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.from.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, ErrTooLong
	}
	return n, err
}

const (
	// MaxBytes is the maximum length of a document.
	MaxBytes = 16 << 20
	// MaxValues is the maximum number of values of a read.
	MaxValues = 20_000
)

var (
	// ErrTooMany means that a read has too many values.
	ErrTooMany = fmt.Errorf("more than %d values", MaxValues)
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
