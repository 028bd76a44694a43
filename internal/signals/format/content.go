package format

import (
	"errors"
	"io"

	"outboard.dev/outboard/signal"
)

// Decoder decodes documents of one form. One goroutine at a time uses it.
type Decoder struct{ items, key, value *path } // nil if they are not set

// New returns a Decoder of documents in the form of c, or an aggregate of field.Error values if a
// path in c is invalid.
func New(c Document) (*Decoder, error) {
	d, errs := c.decoder()
	return d, errs.ToAggregate()
}

// Decode decodes a whole document. Keys may occur more than once.
func (d *Decoder) Decode(r io.Reader, limits signal.Limits) ([]signal.Sample, error) {
	c := &collector{most: limits.Values}
	err := d.decode(limits.Reader(r), c)
	switch {
	case errors.Is(err, signal.ErrTooLong):
		return nil, signal.ErrTooLong
	case err != nil:
		return nil, err
	}
	return c.samples, nil
}

// collector collects the samples of one document.
type collector struct {
	most    int
	samples []signal.Sample
}

func (c *collector) add(key string, n float64) error {
	if len(c.samples) >= c.most {
		return signal.ErrTooMany
	}
	c.samples = append(c.samples, signal.Sample{Key: key, Number: n})
	return nil
}

// checkCollected returns an error if there were items but no sample: then Key or Value are wrong.
func checkCollected(items int, c *collector) error {
	if items > 0 && len(c.samples) == 0 {
		return errors.New("none of its items has both a key and a number")
	}
	return nil
}
