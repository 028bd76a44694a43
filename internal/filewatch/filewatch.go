package filewatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Options configure a Watcher.
type Options struct {
	// Paths are the files of the set. At least one; duplicates count once.
	Paths []string

	// OnChange is called from within Run, one call at a time, with the contents of all files by the
	// path in Paths, whenever any of them differs from the last call (or from what New read). The
	// map and its bytes must not be changed. The callee checks whether the contents are valid: a
	// file that is written in place may be incomplete, and another call follows. Nil: only Contents
	// shows changes.
	OnChange func(contents map[string][]byte)

	// OnError is called from within Run when a file cannot be read, once while the error stays the
	// same. The previous contents stay in use. It is also called with an error that wraps
	// ErrNoNotifications if there are none. Nil: logged as a warning with [slog.Default].
	OnError func(err error)

	// Interval is the time between two polls, for file systems whose notifications do not arrive.
	// Default: 10 s.
	Interval time.Duration

	// Delay is how long after a notification the files are read, so that a burst of notifications
	// causes one read. Default: 100 ms.
	Delay time.Duration

	// MaxFileBytes is the maximum size of a file; a larger one is an error. Default: 4 MiB.
	MaxFileBytes int64
}

// ErrNoNotifications means that the system provides no file notifications, and only polling detects
// changes.
var ErrNoNotifications = errors.New("no file notifications, only polling")

func (o Options) withDefaults() Options {
	o.Paths = slices.Compact(slices.Sorted(slices.Values(o.Paths)))
	if o.OnChange == nil {
		o.OnChange = func(map[string][]byte) {}
	}
	if o.OnError == nil {
		o.OnError = func(err error) { slog.Default().Warn("watched file", "error", err) }
	}
	if o.Interval <= 0 {
		o.Interval = 10 * time.Second
	}
	if o.Delay <= 0 {
		o.Delay = 100 * time.Millisecond
	}
	if o.MaxFileBytes <= 0 {
		o.MaxFileBytes = 4 << 20
	}
	return o
}

// A Watcher watches one set of files. Create it with New.
type Watcher struct {
	opts      Options
	contents  atomic.Pointer[map[string][]byte]
	lastError string // used by Run alone
}

// New reads the files and returns a Watcher with their contents. It opens no resources before Run.
// The error names the file that could not be read.
func New(opts Options) (*Watcher, error) {
	opts = opts.withDefaults()
	if len(opts.Paths) == 0 {
		return nil, errors.New("watch files: no path given")
	}
	contents, err := readStable(opts.Paths, opts.MaxFileBytes)
	if err != nil {
		return nil, err
	}
	w := &Watcher{opts: opts}
	w.contents.Store(&contents)
	return w, nil
}

// Contents returns the contents last read, by path. They must not be modified. Safe for concurrent
// use.
func (w *Watcher) Contents() map[string][]byte { return *w.contents.Load() }

// Run watches until ctx ends, and calls the callbacks. Call it once.
func (w *Watcher) Run(ctx context.Context) {
	notify := newNotifier(w.opts.Paths, w.opts.OnError)
	defer notify.close()
	poll := time.NewTicker(w.opts.Interval)
	defer poll.Stop()
	// Read immediately: changes between New and here caused no notification.
	delay := time.NewTimer(0)
	defer delay.Stop()
	pending := true

	for {
		select {
		case <-ctx.Done():
			return
		case <-notify.changed:
			// Not restarted while it runs: continuous changes must not delay the read forever.
			if !pending {
				pending = true
				delay.Reset(w.opts.Delay)
			}
			continue
		case <-delay.C:
			pending = false
		case <-poll.C:
		}
		notify.update(w.opts.Paths)
		if err := w.check(); errors.Is(err, errUnstable) && !pending {
			pending = true
			delay.Reset(w.opts.Delay)
		}
	}
}

// check reads the files and reports changes. It returns errUnstable if the files changed while they
// were read.
func (w *Watcher) check() error {
	if haveContents(w.Contents()) {
		w.lastError = ""
		return nil
	}
	contents, err := readTwice(w.opts.Paths, w.opts.MaxFileBytes)
	if errors.Is(err, errUnstable) {
		return err
	}
	if err != nil {
		if err.Error() != w.lastError {
			w.lastError = err.Error()
			w.opts.OnError(err)
		}
		return err
	}
	w.lastError = ""
	if maps.EqualFunc(contents, w.Contents(), bytes.Equal) {
		return nil
	}
	w.contents.Store(&contents)
	w.opts.OnChange(contents)
	return nil
}

var errUnstable = errors.New("files changed while they were read")

// readStable reads until two readings agree, a few times at most.
func readStable(paths []string, maxBytes int64) (contents map[string][]byte, err error) {
	for range 20 {
		contents, err = readTwice(paths, maxBytes)
		if !errors.Is(err, errUnstable) {
			return contents, err
		}
	}
	return nil, fmt.Errorf("read %q: %w", paths, err)
}

// readTwice reads all files twice and fails with errUnstable when the readings differ. A set that
// is swapped as a whole between two reads of the first pass cannot look the same in the second.
func readTwice(paths []string, maxBytes int64) (map[string][]byte, error) {
	first, err := readAll(paths, maxBytes)
	if err != nil {
		return nil, err
	}
	if !haveContents(first) {
		return nil, errUnstable
	}
	return first, nil
}

// haveContents reports whether all files can be read and have the contents. It takes little memory,
// however large they are.
func haveContents(contents map[string][]byte) bool {
	part := make([]byte, 32<<10)
	for path, want := range contents {
		if !hasContents(path, want, part) {
			return false
		}
	}
	return true
}

// hasContents uses part to read the file.
func hasContents(path string, want, part []byte) bool {
	f, _, err := open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	for {
		n, err := f.Read(part)
		if n > len(want) || !bytes.Equal(part[:n], want[:n]) {
			return false
		}
		if want = want[n:]; err != nil {
			return err == io.EOF && len(want) == 0
		}
	}
}

func readAll(paths []string, maxBytes int64) (map[string][]byte, error) {
	contents := make(map[string][]byte, len(paths))
	for _, path := range paths {
		data, err := readFile(path, maxBytes)
		if err != nil {
			return nil, err
		}
		contents[path] = data
	}
	return contents, nil
}

// open opens a regular file, and returns its size.
func open(path string) (*os.File, int64, error) {
	// Asked before opening, because opening a named pipe waits for its writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("read %s: not a regular file", path)
	}
	f, err := os.Open(path)
	return f, info.Size(), err
}

func readFile(path string, maxBytes int64) ([]byte, error) {
	f, size, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var data bytes.Buffer
	data.Grow(int(min(size, maxBytes)) + bytes.MinRead) // enough, so that it is not copied
	if _, err := data.ReadFrom(io.LimitReader(f, maxBytes+1)); err != nil {
		return nil, err
	}
	if int64(data.Len()) > maxBytes {
		return nil, fmt.Errorf("read %s: larger than %d bytes", path, maxBytes)
	}
	return data.Bytes(), nil
}

// A notifier turns the notifications for the directories of some files into one signal.
type notifier struct {
	changed chan struct{}
	watcher *fsnotify.Watcher // nil where the system has no notifications left to give
	done    chan struct{}
}

func newNotifier(paths []string, onError func(error)) *notifier {
	n := &notifier{changed: make(chan struct{}, 1), done: make(chan struct{})}
	var err error
	if n.watcher, err = fsnotify.NewWatcher(); err != nil {
		onError(fmt.Errorf("%w: %w", ErrNoNotifications, err))
		n.watcher = nil
		close(n.done)
		return n
	}
	n.update(paths)
	go n.forward()
	return n
}

// forward signals every notification, and every error too: an overflow means that a change was
// lost.
func (n *notifier) forward() {
	defer close(n.done)
	for {
		select {
		case _, ok := <-n.watcher.Events:
			if !ok {
				return
			}
		case _, ok := <-n.watcher.Errors:
			if !ok {
				return
			}
		}
		select {
		case n.changed <- struct{}{}:
		default:
		}
	}
}

// update watches the directories in which the files are now: the one of the path, where links are
// swapped, and the one of the file it leads to, where the file is written. Directories are watched
// rather than files, since a watch on a file ends when the file is replaced. What cannot be watched
// is left to the poll.
func (n *notifier) update(paths []string) {
	if n.watcher == nil {
		return
	}
	var dirs []string
	for _, path := range paths {
		dirs = append(dirs, filepath.Dir(path))
		if target, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	for _, dir := range n.watcher.WatchList() {
		if !slices.Contains(dirs, dir) {
			_ = n.watcher.Remove(dir)
		}
	}
	for _, dir := range dirs {
		_ = n.watcher.Add(dir)
	}
}

func (n *notifier) close() {
	if n.watcher != nil {
		_ = n.watcher.Close()
	}
	<-n.done
}
