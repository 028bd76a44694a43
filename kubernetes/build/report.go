package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// report shows how far the building of one program is: on a terminal one line
// that is rewritten, elsewhere a line now and then. It reads that off what the
// go command prints; what it does not know is the compiler's, and passed on.
type report struct {
	out      io.Writer
	title    string
	terminal bool
	interval time.Duration

	mu         sync.Mutex
	began      time.Time
	downloaded int
	pkg        string          // the program's own package
	total      int             // packages to compile for it
	pending    map[string]bool // those not begun; nil until known
	shown      bool            // an unfinished line is on the terminal
}

func newReport(out io.Writer, title string, terminal bool) *report {
	interval := time.Minute // a log shows that a long build goes on
	if terminal {
		interval = 200 * time.Millisecond
	}
	return &report{out: out, title: title, terminal: terminal, interval: interval}
}

// start begins showing progress. The returned function ends it with the outcome.
func (r *report) start() (stop func(error)) {
	r.began = time.Now()
	done := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		tick := time.NewTicker(r.interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.mu.Lock()
				r.show(r.status(time.Since(r.began)))
				r.mu.Unlock()
			case <-done:
				return
			}
		}
	})
	return func(err error) {
		close(done)
		ticking.Wait()
		elapsed := time.Since(r.began).Round(time.Second)
		if err != nil {
			r.print(fmt.Sprintf("%s: failed after %v", r.title, elapsed))
		} else {
			r.print(fmt.Sprintf("%s: built in %v", r.title, elapsed))
		}
	}
}

// compiling says that pkg is about to be built, and first the packages it needs.
func (r *report) compiling(pkg string, packages []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pkg = pkg
	r.total = len(packages)
	r.pending = make(map[string]bool, len(packages))
	for _, p := range packages {
		r.pending[p] = true
	}
}

// read takes in what the go command prints, to its end.
func (r *report) read(goStderr io.Reader) {
	lines := bufio.NewReader(goStderr)
	for {
		line, err := lines.ReadString('\n')
		if line = strings.TrimRight(line, "\n"); line != "" && !r.take(line) {
			r.print(line)
		}
		if err != nil {
			return
		}
	}
}

// take reports whether line is progress, and counts it.
func (r *report) take(line string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if strings.HasPrefix(line, "go: downloading ") {
		r.downloaded++
		return true
	}
	known := r.pending[line] || line == r.pkg
	delete(r.pending, line)
	return known
}

// status is the line to show after elapsed time. The caller holds mu.
func (r *report) status(elapsed time.Duration) string {
	elapsed = elapsed.Round(time.Second)
	begun := r.total - len(r.pending)
	switch {
	case r.pending == nil && r.downloaded > 0:
		return fmt.Sprintf("%s: modules downloaded: %d, %v", r.title, r.downloaded, elapsed)
	case r.pending == nil:
		return fmt.Sprintf("%s: looking at packages, %v", r.title, elapsed)
	case begun == r.total:
		return fmt.Sprintf("%s: linking, %v", r.title, elapsed)
	default:
		return fmt.Sprintf("%s: %d of %d packages (%d%%), %v", r.title, begun, r.total, 100*begun/r.total, elapsed)
	}
}

// show puts up the current state. The caller holds mu.
func (r *report) show(status string) {
	if r.terminal {
		fmt.Fprintf(r.out, "\r\033[K%s", status)
		r.shown = true
		return
	}
	fmt.Fprintln(r.out, status)
}

// print puts up a line that stays.
func (r *report) print(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shown {
		fmt.Fprint(r.out, "\r\033[K")
		r.shown = false
	}
	fmt.Fprintln(r.out, line)
}
