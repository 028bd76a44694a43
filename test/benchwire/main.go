// Command benchwire measures the processor time of filter and prioritize calls of kube-scheduler. It replays recorded calls, in
// their order, and compares Outboard with the handler of tutorials and with an extender that only responds; or, with -layers, with
// itself without each part that exists for speed alone.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"outboard.dev/outboard/test/measure"
)

func main() {
	measure.Main("benchwire", func(ctx context.Context) error {
		if len(os.Args) > 1 && os.Args[1] == serveArgument {
			return serve(os.Args[2:])
		}
		var o options
		flag.StringVar(&o.data, "data", filepath.Join("internal", "extender", "testdata", "wire"), "the folder with the recorded calls")
		flag.IntVar(&o.rounds, "rounds", 9, "how many times to play the calls")
		flag.IntVar(&o.touch, "touch", 24, "MiB of memory to touch before each call")
		flag.StringVar(&o.only, "only", "", "play only the recordings, or with -layers make only the tables, whose names contain this")
		flag.StringVar(&o.also, "also", "", "another build of this command to measure, too")
		layers := flag.Bool("layers", false, "compare Outboard with itself without each part that exists for speed alone")
		flag.Parse()
		if *layers {
			return runLayers(ctx, o, os.Stdout)
		}
		return run(ctx, o, os.Stdout)
	})
}

type options struct {
	data   string
	rounds int
	touch  int
	only   string
	also   string
}

// recordings are the files with recorded filter calls.
var recordings = []string{"filter-5000-default.jsonl.gz", "filter-5000-all.jsonl.gz"}

func run(ctx context.Context, o options, out io.Writer) error {
	matching, err := measure.Matching(recordings, o.only, func(name string) string { return name })
	if err != nil {
		return err
	}
	for _, name := range matching {
		path, err := filepath.Abs(filepath.Join(o.data, name))
		if err != nil {
			return err
		}
		if err := compare(ctx, o, path, out); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// compare plays one recording to the arms.
func compare(ctx context.Context, o options, path string, out io.Writer) error {
	calls, err := readRecording(path, cheapProfile)
	if err != nil {
		return err
	}
	arms, err := play(ctx, o, calls, path, startable(o.also))
	if err != nil {
		return err
	}
	return report(out, len(calls), len(calls[0].names), arms)
}

// play plays the calls of the recording to all arms, in turn.
func play(ctx context.Context, o options, calls []call, path string, startable []starting) (arms []*arm, err error) {
	defer func() {
		for _, a := range arms {
			err = errors.Join(err, a.Stop())
		}
	}()
	for _, start := range startable {
		a, err := startArm(ctx, start, path)
		if err != nil {
			return nil, err
		}
		arms = append(arms, a)
	}
	p := player{calls: calls, cold: make([]byte, o.touch<<20)}
	for range o.rounds {
		if err := p.playRound(ctx, arms); err != nil {
			return nil, err
		}
	}
	return arms, nil
}
