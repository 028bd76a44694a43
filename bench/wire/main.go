// Command wire measures the processor time of filter and prioritize calls of kube-scheduler. It replays recorded calls, in
// their order, and compares Outboard with the handler of tutorials and with an extender that only responds.
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
	measure.Main("bench", func(ctx context.Context) error {
		if len(os.Args) > 1 && os.Args[1] == serveArgument {
			return serve(os.Args[2:])
		}
		rounds := flag.Int("rounds", 9, "how many times to play the calls")
		flag.Parse()
		return run(ctx, *rounds, os.Stdout)
	})
}

// recordings are the files with recorded filter calls.
var recordings = []string{"filter-5000-default.jsonl.gz", "filter-5000-all.jsonl.gz"}

func run(ctx context.Context, rounds int, out io.Writer) error {
	for _, name := range recordings {
		if err := play(ctx, rounds, filepath.Join("internal", "extender", "testdata", "wire", name), out); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// coldBytes of memory are touched before each call.
const coldBytes = 24 << 20

// play plays the calls of the recording to all arms, in turn.
func play(ctx context.Context, rounds int, path string, out io.Writer) (err error) {
	calls, err := readRecording(path)
	if err != nil {
		return err
	}
	var arms []*arm
	defer func() {
		for _, a := range arms {
			err = errors.Join(err, a.Stop())
		}
	}()
	for _, name := range armNames {
		a, err := startArm(ctx, name, path)
		if err != nil {
			return err
		}
		arms = append(arms, a)
	}
	p := player{calls: calls, cold: make([]byte, coldBytes)}
	for range rounds {
		if err := p.playRound(ctx, arms); err != nil {
			return err
		}
	}
	return report(out, len(calls), len(calls[0].names), arms)
}
