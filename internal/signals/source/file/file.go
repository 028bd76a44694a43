package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"outboard.dev/outboard/internal/signals/format"
	"outboard.dev/outboard/signal"
)

// watchEvery is how often the file is checked for changes.
const watchEvery = time.Second

// Source is a [signal.Source] that detects changes of the file. It has a goroutine until it is
// closed.
type Source struct {
	path    string
	decoder *format.Decoder
	changed chan struct{}
	stop    context.CancelFunc
	running sync.WaitGroup
}

// New returns a Source. The configuration is valid, except for the paths of the document.
func New(c Config) (*Source, error) {
	decoder, err := format.New(c.Document)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Source{path: c.Path, decoder: decoder, changed: make(chan struct{}, 1), stop: stop}
	s.running.Go(func() { s.watch(ctx) })
	return s, nil
}

// Close ends the goroutine.
func (s *Source) Close() error {
	s.stop()
	s.running.Wait()
	return nil
}

// Changed receives a value when the file has changed.
func (s *Source) Changed() <-chan struct{} { return s.changed }

// watch reports that there is another file, or that its time or size has changed.
func (s *Source) watch(ctx context.Context) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	var former os.FileInfo
	for first := true; ; first = false { // it may have been read before the watch started
		info, err := os.Stat(s.path)
		if err != nil {
			info = nil
		}
		same := info == nil && former == nil || info != nil && former != nil && os.SameFile(info, former) &&
			info.ModTime().Equal(former.ModTime()) && info.Size() == former.Size()
		if former = info; first || !same {
			select {
			case s.changed <- struct{}{}:
			default: // a value is there already
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Read reads the file.
func (s *Source) Read(_ context.Context, limits signal.Limits) ([]signal.Sample, error) {
	// Check before opening, because opening a named pipe waits for its writer.
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, fmt.Errorf("file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("file %s: %w", s.path, errNotRegular)
	}
	f, err := os.Open(s.path)
	if err != nil {
		return nil, fmt.Errorf("file: %w", err)
	}
	defer f.Close()
	samples, err := s.decoder.Decode(f, limits)
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", s.path, err)
	}
	return samples, nil
}

var errNotRegular = errors.New("not a regular file")
