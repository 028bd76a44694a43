// Command scheduler measures how fast an unmodified kube-scheduler places pods without an extender, with Outboard in several
// configurations, and with other extenders. It uses a real etcd and kube-apiserver on this machine, with thousands of nodes.
//
// For each setting (the number of nodes, how many of them kube-scheduler evaluates, and the number of templates of the pods), it runs
// the arms in turn, in an order that rotates from round to round. An arm starts a new kube-scheduler and a new extender when
// the pods are pending already.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"outboard.dev/outboard/bench/trials"
	"outboard.dev/outboard/test/measure"
)

func main() {
	measure.Main("bench-scheduler", func(ctx context.Context) error {
		if len(os.Args) > 1 && os.Args[1] == serveArgument {
			return serve(os.Args[2:])
		}
		o, err := parse(os.Args[1:], os.Stderr)
		if err != nil {
			return err
		}
		return o.run(ctx, os.Stdout, os.Stderr)
	})
}

// options are the settings of a measurement. The fields that parse sets are required.
type options struct {
	plan   []setting
	rounds int
	// limit is how long an arm may take at most to place its pods. What it has placed by then counts.
	limit time.Duration
	// interval is the time between two readings of kube-scheduler's metrics.
	interval time.Duration
	outboard string // the binary
}

// fewPods are so few that kube-scheduler may place all of them before the second reading: readings come more often.
// That is to try something, and no measurement.
const fewPods = 1000

func parse(args []string, usage io.Writer) (*options, error) {
	o := &options{interval: 500 * time.Millisecond}
	flags := flag.NewFlagSet("bench-scheduler", flag.ContinueOnError)
	flags.SetOutput(usage)
	var s selection
	quick := flags.Bool("quick", false, "measure the most important settings and arms only, in a few minutes")
	shortlist := flags.Bool("shortlist", false, "measure the plugin with a shortlist, also for pods that a Service selects, that exclude each other, that are not eligible, and that request GPU memory")
	flags.IntVar(&o.rounds, "rounds", 0, "how often each arm is measured (default 3, with -quick 2)")
	flags.Var(&s.nodes, "nodes", "numbers of nodes, separated by commas")
	flags.IntVar(&s.pods, "pods", 0, "how many pods each arm places (default 1000, with percentage 100 400)")
	flags.StringVar(&s.arms, "arms", "", "names of arms, separated by commas, or all; the others are compared with the first")
	flags.DurationVar(&o.limit, "limit", 15*time.Second, "how long an arm may place pods at most")
	flags.StringVar(&s.kinds, "kinds", "", "measure the settings with these kinds of pods only, separated by commas: plain; with -shortlist also selected, apart, restricted, gpu")
	flags.StringVar(&o.outboard, "outboard", "", "the outboard binary (default: built from this checkout)")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	plan, rounds := fullPlan, 3
	if *quick {
		plan, rounds = quickPlan, 2
	}
	if *shortlist {
		plan = shortlistPlan
	}
	o.rounds = cmp.Or(o.rounds, rounds)
	if o.rounds < 1 || o.limit <= 0 || s.pods < 0 {
		return nil, errors.New("-rounds and -limit must be positive, -pods not negative")
	}
	if s.pods > 0 && s.pods < fewPods {
		o.interval = 20 * time.Millisecond
	}
	var err error
	o.plan, err = s.apply(plan)
	return o, err
}

// run measures all settings and prints a table of each as soon as it is complete.
func (o *options) run(ctx context.Context, out, progress io.Writer) error {
	for _, s := range o.plan {
		for _, a := range s.arms {
			if program := a.program(); program != "" {
				if _, err := os.Stat(program); err != nil {
					return fmt.Errorf("the arm %s: %w", a.name, err)
				}
			}
		}
	}
	machine(out)
	var c *cluster
	defer func() {
		if c != nil {
			_ = c.Stop() // what matters has been reported
		}
	}()
	for _, s := range o.plan {
		if c == nil || c.nodes != s.nodes || c.gpus != (s.kind == sharing) {
			if c != nil {
				if err := c.Stop(); err != nil {
					return err
				}
			}
			var err error
			if c, err = startCluster(ctx, o, s.nodes, s.kind == sharing, progress); err != nil {
				return err
			}
		}
		results, err := o.measure(ctx, c, s, progress)
		if err != nil {
			err = fmt.Errorf("%s: %w", s, err)
		}
		if err := errors.Join(err, report(out, s, results)); err != nil {
			return err
		}
	}
	return nil
}

// measure measures the arms of a setting in turn. With an error, it returns what it has measured before.
func (o *options) measure(ctx context.Context, c *cluster, s setting, progress io.Writer) ([]result, error) {
	var results []result
	if err := c.selectPods(ctx, s.kind == selected); err != nil {
		return nil, err
	}
	for round := range o.rounds {
		for _, a := range trials.Turn(s.arms, round) {
			began := time.Now()
			r, err := o.play(ctx, c, s, a, round)
			if err != nil {
				return results, fmt.Errorf("%s: %w", a.name, err)
			}
			results = append(results, r)
			fmt.Fprintf(progress, "%s, round %d of %d, %s: %.0f pods/s (%d pods; %.0f s in all)\n",
				s, round+1, o.rounds, a.name, r.PodsPerSecond, r.Pods, time.Since(began).Seconds())
		}
	}
	return results, nil
}
