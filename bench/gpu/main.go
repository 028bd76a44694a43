// Command gpu fills the cluster of a published trace with pods through an unmodified
// kube-scheduler and `outboard serve`, in three configurations, and prints the result of each with the
// prediction of the simulation. With -claims, pods request the GPUs by ResourceClaims, and kube-scheduler
// runs alone or with the policy ResourceClaims.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"outboard.dev/outboard/bench/trials"
	"outboard.dev/outboard/test/measure"
	"outboard.dev/outboard/test/openb"
)

func main() {
	o := options{trace: trace{until: 1.3}, draws: 5, tolerance: 0.5}
	data := flag.String("data", "", "the folder with openb_node_list_gpu_node.csv and openb_pod_list_default.csv")
	nodes := flag.Int("nodes", 0, "use only this many nodes, evenly spread over the list; 0: all")
	only := flag.String("only", "", "run only the arms whose names contain this")
	flag.StringVar(&o.binary, "outboard", "", "the outboard binary (default: built from this checkout)")
	flag.Uint64Var(&o.seed, "seed", 42, "seed for the order of the pods")
	claims := flag.Bool("claims", false, "give the pods ResourceClaims for shares of devices instead of resources of gpushare")
	partitions := flag.Int("partitions", 0, "instead, place so many pods, most of which request MIG partitions, one after the other, and compare with the simulation")
	hours := flag.Float64("departures", 0, "instead, create pods for so many hours of the trace, delete each after its lifetime, and report how long pods were pending")
	faster := flag.Float64("faster", 40, "with -departures: how many times as fast as in the trace time passes")
	load := flag.Float64("load", 0.9, "with -departures: the requested share of the GPUs")
	flag.IntVar(&o.percentage, "percentage", 0, "percentageOfNodesToScore of kube-scheduler; 0: its default")
	flag.Parse()
	measure.Main("demo-gpu", func(ctx context.Context) (err error) {
		if *partitions > 0 {
			return o.comparePartitions(ctx, *partitions, os.Stdout, os.Stderr)
		}
		if err := o.read(*data, *nodes); err != nil {
			return err
		}
		all := arms
		if *claims {
			all = claimArms
			if err := o.useClaims(); err != nil {
				return err
			}
		}
		if o.arms, err = trials.Matching(all, *only, func(a arm) string { return a.name }); err != nil {
			return err
		}
		if *hours > 0 {
			return o.comeAndGo(ctx, comeAndGo{time.Duration(*hours * float64(time.Hour)), *faster, *load}, os.Stdout, os.Stderr)
		}
		return o.run(ctx, os.Stdout, os.Stderr)
	})
}

// options are the arms and the cluster. All fields except binary are required.
type options struct {
	trace
	arms   []arm
	binary string
	draws  int
	// tolerance is the difference from the prediction that a result may have, in percent of the GPUs, if
	// chance does not permit more.
	tolerance float64
}

func (o *options) read(dir string, nodes int) (err error) {
	all, jobs, err := openb.Read(dir, openb.Pods)
	if err != nil {
		return err
	}
	o.nodes, o.jobs, o.mix = openb.Spread(all, nodes), jobs, openb.PodsOf(jobs)
	return nil
}

// run runs all arms, reports the results, and returns an error if one is not acceptable.
func (o *options) run(ctx context.Context, out, progress io.Writer) error {
	pods, err := o.order()
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "%d nodes, %d pods; simulating each arm %d times\n", len(o.nodes), len(pods), o.draws)
	results := make([]result, len(o.arms))
	for i := range o.arms {
		if results[i].predicted, err = o.predict(ctx, &o.arms[i]); err != nil {
			return err
		}
		fmt.Fprintf(progress, "%s: %s %% predicted\n", o.arms[i].name, results[i].predicted.allocated.Text(2))
	}
	for i := range o.arms {
		if results[i].measured, err = o.play(ctx, &o.arms[i], pods, progress); err != nil {
			return fmt.Errorf("%s: %w", o.arms[i].name, err)
		}
		fmt.Fprintf(progress, "%s: at %v, %.2f %% are allocated\n", o.arms[i].name, loads, results[i].measured.curve)
	}
	return o.report(results, out)
}
