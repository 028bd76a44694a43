package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/bench/trials"
	"outboard.dev/outboard/internal/simulate"
)

// prediction is the result of the simulation of an arm.
type prediction struct {
	// Both in percent of the GPUs; of first, only runs in which a pod with GPUs was
	// rejected are counted.
	allocated, first trials.Figures
	// curve is allocated at each of loads.
	curve [len(loads)]trials.Figures
}

// predict simulates the arm several times. The same pods arrive in the same order each time. As in a real cluster,
// kube-scheduler's choice among equal nodes is random, and so are the UIDs of nodes, by which strategies break ties.
func (o *options) predict(ctx context.Context, a *arm) (prediction, error) {
	filled := make([]*simulate.Filled, o.draws)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range o.draws {
		group.Go(func() (err error) {
			w := o.world()
			if w.Scheduler, w.Extenders, err = a.simulated(); err != nil {
				return err
			}
			w.Scheduler.Ties, w.Scheduler.PercentageOfNodesToScore = uint64(i), o.percentage
			w.Nodes = withUIDs(o.nodes, uint64(i))
			filled[i], err = w.FillUp(ctx, o.mix, o.seed, o.until)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return prediction{}, err
	}
	var p prediction
	for _, f := range filled {
		p.allocated = append(p.allocated, 100*f.Curve[len(f.Curve)-1].Allocated)
		for i, load := range loads {
			p.curve[i] = append(p.curve[i], 100*f.At(load))
		}
		if f.FirstRejected > 0 {
			p.first = append(p.first, 100*f.FirstRejected)
		}
	}
	return p, nil
}

// withUIDs are the nodes with other UIDs.
func withUIDs(nodes []*corev1.Node, draw uint64) []*corev1.Node {
	random := rand.New(rand.NewPCG(draw, 0))
	all := make([]*corev1.Node, len(nodes))
	for i, like := range nodes {
		n := *like // shallow: it is not written to
		n.UID = types.UID(fmt.Sprintf("%016x%016x", random.Uint64(), random.Uint64()))
		all[i] = &n
	}
	return all
}
