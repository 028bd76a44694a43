package filewatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"sync/atomic"
	"time"
)

// Options configure a Watcher.
type Options struct {
	// Paths are the files of the set. At least one; duplicates count once.
	Paths []string

	// OnChange is called from within Run, one call at a time, with the contents of all files by the
	// path in Paths, whenever any of them differs from the last call (or from what New read). The
	// map and its bytes must not be changed. The callee checks whether the contents are valid: a
	// file that is written in place may be incomplete, and another call follows.
	OnChange func(contents map[string][]byte)

	// OnError is called from within Run when a file cannot be read, once while the error stays the
	// same. The previous contents stay in use.
	OnError func(err error)

	// Interval is the time between two readings. Default: 1 s.
	Interval time.Duration

	// MaxFileBytes is the maximum size of a file; a larger one is an error. Default: 4 MiB.
	MaxFileBytes int64
}

// A Watcher watches one set of files. Create it with New.
type Watcher struct {
	opts      Options
	contents  atomic.Pointer[map[string][]byte]
	lastError string // used by Run alone
}

// New reads the files and returns a Watcher with their contents. The error names the file that
// could not be read.
func New(opts Options) (*Watcher, error) {
	if opts.Interval <= 0 {
		opts.Interval = time.Second
	}
	if opts.MaxFileBytes <= 0 {
		opts.MaxFileBytes = 4 << 20
	}
	if len(opts.Paths) == 0 {
		return nil, errors.New("watch files: no path given")
	}
	w := &Watcher{opts: opts}
	for range 20 {
		contents, err := w.read()
		switch {
		case err == nil:
			w.contents.Store(&contents)
			return w, nil
		case !errors.Is(err, errUnstable):
			return nil, err
		}
	}
	return nil, fmt.Errorf("read %q: %w", opts.Paths, errUnstable)
}

// Contents returns the contents last read, by path. They must not be modified. Safe for concurrent
// use.
func (w *Watcher) Contents() map[string][]byte { return *w.contents.Load() }

// Run watches until ctx ends, and calls the callbacks. Call it once.
func (w *Watcher) Run(ctx context.Context) {
	ticker := time.NewTicker(w.opts.Interval)
	defer ticker.Stop()
	for {
		w.check()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// check reads the files and reports changes.
func (w *Watcher) check() {
	contents, err := w.read()
	switch {
	case errors.Is(err, errUnstable): // the next reading is soon
	case err == nil:
		w.lastError = ""
		if !equal(contents, w.Contents()) {
			w.contents.Store(&contents)
			w.opts.OnChange(contents)
		}
	case err.Error() != w.lastError:
		w.lastError = err.Error()
		w.opts.OnError(err)
	}
}

var errUnstable = errors.New("files changed while they were read")

// read reads all files twice, and fails with errUnstable when the readings differ. A set that is
// swapped as a whole between two reads of the first pass cannot look the same in the second.
func (w *Watcher) read() (map[string][]byte, error) {
	first, err := w.readAll()
	if err != nil {
		return nil, err
	}
	if second, err := w.readAll(); err != nil || !equal(first, second) {
		return nil, errUnstable
	}
	return first, nil
}

func equal(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }

// readAll reads all files once.
func (w *Watcher) readAll() (map[string][]byte, error) {
	contents := make(map[string][]byte, len(w.opts.Paths))
	for _, path := range w.opts.Paths {
		data, err := readFile(path, w.opts.MaxFileBytes)
		if err != nil {
			return nil, err
		}
		contents[path] = data
	}
	return contents, nil
}

func readFile(path string, maxBytes int64) ([]byte, error) {
	// Asked before opening, because opening a named pipe waits for its writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && int64(len(data)) > maxBytes {
		err = fmt.Errorf("read %s: larger than %d bytes", path, maxBytes)
	}
	return data, err
}
