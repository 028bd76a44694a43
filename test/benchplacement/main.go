// Command benchplacement measures how the strategies of GPUMemory fill the cluster of a
// published trace, through the engine that serves kube-scheduler.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/simulate"
)

func main() {
	var o options
	flag.StringVar(&o.data, "data", "", "the folder with openb_node_list_gpu_node.csv and openb_pod_list_default.csv")
	flag.StringVar(&o.pictures, "pictures", "bin", "the folder for the pictures")
	flag.IntVar(&o.seeds, "seeds", 10, "how many seeds, from 42 on")
	flag.IntVar(&o.nodes, "nodes", 0, "use the first so many nodes only; 0: all")
	flag.Float64Var(&o.hours, "hours", 48, "how many hours pods come and go for")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "benchplacement:", err)
		os.Exit(1)
	}
}

type options struct {
	data, pictures string
	seeds, nodes   int
	hours          float64
}

const (
	resource  = "aliyun.com/gpu-mem"
	firstSeed = 42
	until     = 1.3
	load      = 0.95
)

// contenders are compared on each of the samplings, and with pods that come and go.
var contenders = []struct {
	name     string
	strategy gpumemory.NodeScore
	known    bool // from all pods, before the first comes
}{
	{"bestFit", gpumemory.BestFitNodes, false},
	{"fgd, mix known", gpumemory.FGD, true},
	{"fgd, mix learned", gpumemory.FGD, false},
	{"leastWaste, mix known", gpumemory.LeastWaste, true},
	{"leastWaste, mix learned", gpumemory.LeastWaste, false},
}

// samplings are values of kube-scheduler's percentageOfNodesToScore.
var samplings = []struct {
	percentage int
	name       string
}{
	{100, "100 % of nodes"}, {0, "default"}, {10, "10 % of nodes"},
}

// task is one arm with one seed.
type task struct {
	title string
	play  func(context.Context) (result string, err error)
}

func run(ctx context.Context, o *options, out, progress io.Writer) error {
	if o.seeds < 1 || o.nodes < 0 || !(o.hours > 0) {
		return errors.New("--seeds and --hours must be more than 0, --nodes 0 or more")
	}
	world, jobs, err := read(o)
	if err != nil {
		return err
	}
	var tasks []task
	filled := make([]simulate.Arm, 0, len(samplings)*len(contenders))
	for _, s := range samplings {
		for _, c := range contenders {
			arm := simulate.Arm{Name: c.name + ", " + s.name, Filled: make([]*simulate.Filled, o.seeds)}
			w := *world
			w.Scheduler.PercentageOfNodesToScore = s.percentage
			if c.known {
				w.Known = jobs
			}
			filled = append(filled, arm)
			for i := range o.seeds {
				tasks = append(tasks, fill(w, jobs, c.strategy, arm.Filled, i, arm.Name))
			}
		}
	}
	replayed := make([]simulate.Arm, 0, len(contenders))
	for _, c := range contenders {
		arm := simulate.Arm{Name: c.name, Replayed: make([]*simulate.Replayed, o.seeds)}
		w := *world
		w.Scheduler.PercentageOfNodesToScore = 100
		if c.known {
			w.Known = jobs
		}
		replayed = append(replayed, arm)
		for i := range o.seeds {
			tasks = append(tasks, comeAndGo(w, jobs, c.strategy, arm.Replayed, i, o.hours, arm.Name))
		}
	}
	if err := playAll(ctx, tasks, progress); err != nil {
		return err
	}
	return report(o, world, filled, replayed, out)
}

// read returns the cluster and the pods of the trace.
func read(o *options) (*simulate.World, []simulate.Job, error) {
	w := &simulate.World{Resource: resource, Scheduler: simulate.Scheduler{ResourceScore: simulate.LeastAllocated, ExtenderWeight: 1}}
	var jobs []simulate.Job
	for _, name := range []string{"openb_node_list_gpu_node.csv", "openb_pod_list_default.csv"} {
		f, err := os.Open(filepath.Join(o.data, name))
		if err != nil {
			return nil, nil, err
		}
		objects, more, err := simulate.ReadOpenB(f)
		f.Close()
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		w.Nodes, jobs = append(w.Nodes, objects.Nodes...), append(jobs, more...)
	}
	if o.nodes > 0 && o.nodes < len(w.Nodes) {
		w.Nodes = w.Nodes[:o.nodes]
	}
	return w, jobs, nil
}

// extender answers with the best node only. Each task has its own, as if started for it.
func extender(strategy gpumemory.NodeScore) (simulate.Extender, error) {
	c := gpumemory.Defaults()
	c.ScoreNodes, c.MultiCard = strategy, true // pods of the trace want parts of several GPUs
	p, err := gpumemory.New(c)
	if err != nil {
		return simulate.Extender{}, err
	}
	e, err := engine.New(engine.Options{Policies: []engine.Member{{Name: "GPUMemory", Policy: p, Weight: 1}}, Shortlist: 1})
	return simulate.Extender{Engine: e}, err
}

func fill(w simulate.World, jobs []simulate.Job, strategy gpumemory.NodeScore, results []*simulate.Filled, i int, name string) task {
	seed := uint64(firstSeed + i)
	return task{fmt.Sprintf("%s, seed %d", name, seed), func(ctx context.Context) (string, error) {
		var err error
		if w.Extender, err = extender(strategy); err != nil {
			return "", err
		}
		if results[i], err = w.FillUp(ctx, jobs, seed, until, func(float64) {}); err != nil {
			return "", err
		}
		return fmt.Sprintf("%.2f %% allocated", 100*results[i].At(until)), nil
	}}
}

func comeAndGo(w simulate.World, jobs []simulate.Job, strategy gpumemory.NodeScore, results []*simulate.Replayed, i int, hours float64, name string) task {
	seed := uint64(firstSeed + i)
	return task{fmt.Sprintf("pods come and go, %s, seed %d", name, seed), func(ctx context.Context) (string, error) {
		var err error
		if w.Extender, err = extender(strategy); err != nil {
			return "", err
		}
		end := time.Duration(hours * float64(time.Hour))
		arrivals, err := w.Arrivals(jobs, simulate.Load{Offered: load, For: end, MinLifetime: time.Minute, MaxLifetime: 6 * time.Hour}, seed)
		if err != nil {
			return "", err
		}
		if results[i], err = w.Replay(ctx, arrivals, seed, end, func(float64) {}); err != nil {
			return "", err
		}
		return fmt.Sprintf("%.2f %% served", 100*results[i].Served), nil
	}}
}

// playAll plays as many tasks at once as there are cores, and stops at the first error.
func playAll(ctx context.Context, tasks []task, progress io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wait sync.WaitGroup
	var mu sync.Mutex
	next, done := 0, 0
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for {
				mu.Lock()
				if next == len(tasks) || ctx.Err() != nil {
					mu.Unlock()
					return
				}
				t := tasks[next]
				next++
				mu.Unlock()
				result, err := t.play(ctx)
				if err != nil {
					cancel(fmt.Errorf("%s: %w", t.title, err))
					return
				}
				mu.Lock()
				done++
				fmt.Fprintf(progress, "%3d of %d: %s: %s\n", done, len(tasks), t.title, result)
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return context.Cause(ctx)
}

// report writes one picture for each sampling, and then the tables.
func report(o *options, w *simulate.World, filled, replayed []simulate.Arm, out io.Writer) error {
	if err := os.MkdirAll(o.pictures, 0o755); err != nil {
		return err
	}
	for i, s := range samplings {
		name := filepath.Join(o.pictures, fmt.Sprintf("placement-%d.svg", s.percentage))
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		err = simulate.WritePicture(f, filled[i*len(contenders):(i+1)*len(contenders)], until)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s\n", name, s.name)
	}
	gpus, unit := simulate.Count(w.Nodes, w.Resource)
	fmt.Fprintf(out, "\nFilling %d nodes, %d seeds:\n", len(w.Nodes), o.seeds)
	if err := simulate.WriteFilled(out, filled, until, gpus, unit); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nPods that come and go, load %.2f, %v hours:\n", load, o.hours)
	return simulate.WriteReplayed(out, replayed)
}
