package content

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"outboard.dev/outboard/internal/lmstat"
	"outboard.dev/outboard/signal"
)

// Decoder decodes documents of one kind. One goroutine at a time uses it.
type Decoder struct {
	format Format
	paths
	columns     columns
	ignoreHosts []string
}

// New returns a Decoder of documents in the form of c, or an aggregate of field.Error values if a
// path in c is invalid.
func New(c Document) (*Decoder, error) {
	c.Format = cmp.Or(c.Format, YAML)
	paths, errs := c.paths()
	return &Decoder{format: c.Format, paths: paths, columns: columns{c.Key, c.Value}, ignoreHosts: c.IgnoreHosts}, errs.ToAggregate()
}

// Decode decodes a whole document. Keys may occur more than once.
func (d *Decoder) Decode(r io.Reader, limits signal.Limits) ([]signal.Sample, error) {
	samples, err := d.decode(limits.Reader(r), limits.Values)
	switch {
	case errors.Is(err, signal.ErrTooLong):
		return nil, signal.ErrTooLong
	case err != nil:
		return nil, fmt.Errorf("%s: %w", d.format, err)
	}
	return samples, nil
}

func (d *Decoder) decode(r io.Reader, most int) ([]signal.Sample, error) {
	c := &collector{most: most}
	switch d.format {
	case Lmstat:
		samples, err := lmstat.Parse(r, d.ignoreHosts)
		if err == nil && len(samples) > most {
			err = signal.ErrTooMany
		}
		return samples, err
	case CSV:
		err := d.columns.decode(r, c)
		return c.samples, err
	}
	err := d.decodeTree(r, c)
	return c.samples, err
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
