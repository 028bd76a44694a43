package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	sample  int
	seed    uint64
	only    string
	results string
}

func main() {
	var o options
	flag.IntVar(&o.sample, "sample", 0, "run this many generated mutants, instead of those in table.go")
	flag.Uint64Var(&o.seed, "seed", 1, "which of the generated mutants are sampled")
	flag.StringVar(&o.only, "only", "", "run only the mutants whose name contains this text")
	flag.StringVar(&o.results, "results", "bin/mutants", "file with the mutants that earlier runs have killed, which are skipped while code and tests are the same")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	survivors, err := run(ctx, o, os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	case survivors > 0:
		os.Exit(1)
	}
}

// run runs the mutants from the root of the module, and returns how many have survived that are not in testdata/accepted.txt.
func run(ctx context.Context, o options, out io.Writer) (survivors int, err error) {
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	known, err := openResults(o.results)
	if err != nil {
		return 0, err
	}
	defer known.file.Close()
	accepted, err := readAccepted(filepath.Join("test/mutants", acceptedFile))
	if err != nil {
		return 0, err
	}
	r := runner{options: o, work: work, out: out, results: known, accepted: accepted}
	started := time.Now()
	if o.sample > 0 {
		err = r.sampled(ctx)
	} else {
		err = r.declared(ctx)
	}
	fmt.Fprintf(out, "%d mutants: %d killed (%d of them by an earlier run), %d accepted, %d survived; %s\n",
		r.total, r.killed, r.skipped, r.ok, r.survived, time.Since(started).Round(time.Second))
	if err == nil && r.total == 0 {
		err = fmt.Errorf("the name of no mutant contains %q", o.only)
	}
	return r.survived, err
}

// runner runs mutants, one after the other.
type runner struct {
	options
	work     string
	out      io.Writer
	results  *results
	accepted map[string]string // the reason for each mutant that may survive

	built                                int // test programs
	total, killed, skipped, ok, survived int
}

// judge runs a mutant, unless an earlier run has killed it with the same code and tests. test returns the test that fails, or "".
func (r *runner) judge(name, state string, test func() (killer string, err error)) error {
	if !strings.Contains(name, r.only) {
		return nil
	}
	r.total++
	if r.results.killed(name, state) {
		r.killed, r.skipped = r.killed+1, r.skipped+1
		return nil
	}
	killer, err := test()
	switch reason, ok := r.accepted[name]; {
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	case killer != "":
		r.killed++
		if ok {
			fmt.Fprintf(r.out, "%s: killed by %s, although %s accepts it\n", name, killer, acceptedFile)
		}
		return r.results.add(name, state, killer)
	case ok:
		r.ok++
		fmt.Fprintf(r.out, "%s: survives, accepted: %s\n", name, reason)
	default:
		r.survived++
		fmt.Fprintf(r.out, "%s: SURVIVES\n", name)
	}
	return nil
}
