// Command placement measures how the strategy of GPUMemory, and published ones for comparison, fill the cluster
// of a published trace, through the engine that serves kube-scheduler.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"outboard.dev/outboard/bench/replay"
	"outboard.dev/outboard/bench/strategies"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/simulate"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/test/measure"
	"outboard.dev/outboard/test/openb"
)

func main() {
	var o options
	flag.StringVar(&o.data, "data", "", "the folder with openb_node_list_gpu_node.csv and a list of pods")
	flag.StringVar(&o.pods, "pods", openb.Pods, "the list of pods in it")
	flag.IntVar(&o.seeds, "seeds", 10, "how many seeds, from 42 on")
	flag.Float64Var(&o.load, "load", 0.95, "departures: the requested share of the GPUs")
	flag.StringVar(&o.arms, "arms", "", "departures: only the arms with these names, separated by semicolons")
	flag.IntVar(&o.nodes, "nodes", 0, "only so many nodes, evenly spread over the list; 0: all")
	flag.StringVar(&o.parts, "parts", strings.Join(parts, ","), "what to measure")
	flag.Parse()
	measure.Main("bench-placement", func(ctx context.Context) error { return run(ctx, &o, os.Stdout, os.Stderr) })
}

type options struct {
	data, pods string
	seeds      int
	nodes      int // so many of them, evenly spread; 0: all
	parts      string
	load       float64 // of departures
	arms       string  // of departures
}

const (
	gpuMemory = "aliyun.com/gpu-mem"
	firstSeed = 42
	pictures  = "bin" // the folder
	hours     = 16    // for which pods come and go
	until     = 1.3
	// fewSeeds are enough where differences are large.
	fewSeeds = 3
	// extenderWeight makes one level of ours count more than all that kube-scheduler's
	// own scores can say.
	extenderWeight = 100
)

// contender is a way to place pods.
type contender struct {
	name     string
	strategy policy.ScoringStrategyType
	known    bool // from all pods, before the first comes
	// shortlist is how many nodes filter answers with; 0: all that fit.
	shortlist int
	// firstFit says that a pod gets the first GPUs of its node with room, as kube-scheduler allocates
	// devices for allocations.
	firstFit bool
	score    simulate.ResourceScore // of kube-scheduler; "": LeastAllocated
}

var (
	bestFit           = contender{name: "BestFit", strategy: strategies.ScoreBestFit, shortlist: 1}
	fgdKnown          = contender{name: "FGD, mix known", strategy: strategies.ScoreFGD, known: true, shortlist: 1}
	fgdLearned        = contender{name: "FGD, mix learned", strategy: strategies.ScoreFGD, shortlist: 1}
	leastWasteKnown   = contender{name: "LeastWaste, mix known", strategy: gpumemory.LeastWaste, known: true, shortlist: 1}
	leastWasteLearned = contender{name: "LeastWaste, mix learned", strategy: gpumemory.LeastWaste, shortlist: 1}

	contenders = []contender{bestFit, fgdKnown, fgdLearned, leastWasteKnown, leastWasteLearned}

	// Of these, kube-scheduler selects the GPUs of a node.
	leastAllocatedFirst = contender{name: "LeastAllocated, first GPUs", strategy: strategies.ScoreNone, firstFit: true}
	mostAllocatedFirst  = contender{name: "MostAllocated, first GPUs", strategy: strategies.ScoreNone, firstFit: true, score: simulate.MostAllocated}
	binPackFirst        = contender{name: "BinPack, first GPUs", strategy: policy.BinPack, firstFit: true}
	spreadFirst         = contender{name: "Spread, first GPUs", strategy: policy.Spread, firstFit: true}
	fgdFirst            = contender{name: "FGD, mix known, first GPUs", strategy: strategies.ScoreFGD, known: true, shortlist: 1, firstFit: true}
	leastWasteFirst     = contender{name: "LeastWaste, mix learned, first GPUs", strategy: gpumemory.LeastWaste, shortlist: 1, firstFit: true}

	firstFits = []contender{leastAllocatedFirst, mostAllocatedFirst, binPackFirst, spreadFirst, fgdFirst, leastWasteFirst, leastWasteLearned}
)

// filling compares contenders that fill the cluster.
type filling struct {
	title      string
	picture    string // the file's name; "": none
	percentage int    // percentageOfNodesToScore
	contenders []contender
	mix        mix // the zero mix is that of the trace
	few        bool
}

// fillings are those of each part.
func fillings() map[string][]filling {
	all := map[string][]filling{
		"sampling": {
			{title: "kube-scheduler looks at all nodes", picture: "placement-100.svg", percentage: 100, contenders: contenders},
			{title: "kube-scheduler looks at as many as it does by default", picture: "placement-0.svg", contenders: contenders},
			{title: "kube-scheduler looks at 10 % of nodes", picture: "placement-10.svg", percentage: 10, contenders: contenders},
		},
		"wire": {{
			title: "how the ranking reaches kube-scheduler, which looks at all nodes", percentage: 100, few: true,
			contenders: []contender{
				{name: "FGD, scores 0..10", strategy: strategies.ScoreFGD, known: true},
				{name: "FGD, shortlist 8", strategy: strategies.ScoreFGD, known: true, shortlist: 8},
				{name: "FGD, shortlist 1", strategy: strategies.ScoreFGD, known: true, shortlist: 1},
				{name: "LeastWaste, scores 0..10", strategy: gpumemory.LeastWaste},
				{name: "LeastWaste, shortlist 8", strategy: gpumemory.LeastWaste, shortlist: 8},
				{name: "LeastWaste, shortlist 1", strategy: gpumemory.LeastWaste, shortlist: 1},
			},
		}},
		"first-fit": {{title: "kube-scheduler looks at all nodes, and a pod gets the first GPUs with room", percentage: 100, contenders: firstFits}},
	}
	for _, m := range mixes {
		all["mixes"] = append(all["mixes"], filling{title: "other pods: " + m.name, percentage: 100, contenders: []contender{bestFit, fgdKnown, leastWasteLearned}, mix: m, few: true})
	}
	return all
}

// parts are in the order in which they are played.
var parts = []string{"sampling", "wire", "mixes", "first-fit", "partitions", "departures", "decisions"}

// task is one arm with one seed.
type task struct {
	title string
	play  func(context.Context) (result string, err error)
}

func run(ctx context.Context, o *options, out, progress io.Writer) error {
	if o.seeds < 1 {
		return errors.New("--seeds must be more than 0")
	}
	world, jobs, err := read(o)
	if err != nil {
		return err
	}
	wanted := strings.Split(o.parts, ",")
	for _, part := range wanted {
		if !slices.Contains(parts, part) {
			return fmt.Errorf("--parts: %q is none of %s", part, strings.Join(parts, ", "))
		}
	}
	b := &bench{options: o, world: world, jobs: jobs, out: out, progress: progress}
	for _, part := range parts {
		if !slices.Contains(wanted, part) {
			continue
		}
		switch part {
		case "partitions":
			err = b.servePartitions(ctx)
		case "departures":
			err = b.comeAndGo(ctx)
		case "decisions":
			err = b.decide(ctx)
		default:
			for _, f := range fillings()[part] {
				if err = b.fill(ctx, f); err != nil {
					break
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bench is one run of this command.
type bench struct {
	*options
	world         *simulate.World
	jobs          []openb.Job
	out, progress io.Writer
}

// read returns the cluster and the pods of the trace.
func read(o *options) (*simulate.World, []openb.Job, error) {
	w := &simulate.World{Resource: gpuMemory, Scheduler: simulate.Scheduler{ResourceScore: simulate.LeastAllocated}}
	var jobs []openb.Job
	var err error
	if w.Nodes, jobs, err = openb.Read(o.data, o.pods); err != nil {
		return nil, nil, err
	}
	w.Nodes = openb.Spread(w.Nodes, o.nodes)
	return w, jobs, nil
}

// extender is an extender without any call so far.
func extender(c contender) (simulate.Extender, error) {
	config := gpumemory.Defaults()
	config.ScoringStrategy.Type, config.MultiGPU = c.strategy, true // pods of the trace want parts of several GPUs
	build := strategies.New
	if c.firstFit {
		build = strategies.NewFirstFit
	}
	p, err := build(config)
	if err != nil {
		return simulate.Extender{}, err
	}
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "GPUMemory", Policy: p, Weight: 1}}, Shortlist: c.shortlist})
	return simulate.Extender{Engine: e, Weight: extenderWeight}, err
}

// worldOf returns the cluster as the contender finds it.
func (b *bench) worldOf(c contender, jobs []openb.Job, percentage int) (*simulate.World, error) {
	w := *b.world
	w.Scheduler.PercentageOfNodesToScore = percentage
	w.Scheduler.ResourceScore = cmp.Or(c.score, w.Scheduler.ResourceScore)
	w.Scheduler.NoPrioritize = c.strategy == strategies.ScoreNone // all its scores are equal
	if c.known {
		w.Known = openb.PodsOf(jobs)
	}
	x, err := extender(c)
	w.Extenders = []simulate.Extender{x}
	return &w, err
}

func (b *bench) fill(ctx context.Context, f filling) error {
	seeds, jobs := b.seeds, b.jobs
	if f.few {
		seeds = min(seeds, fewSeeds)
	}
	if f.mix != (mix{}) {
		jobs = f.mix.draw(jobs, b.world.Nodes)
	}
	var arms []simulate.Arm
	var tasks []task
	for _, c := range f.contenders {
		results := make([]*simulate.Filled, seeds)
		arms = append(arms, simulate.Arm{Name: c.name, Filled: results})
		for i := range seeds {
			tasks = append(tasks, task{fmt.Sprintf("%s: %s, seed %d", f.title, c.name, firstSeed+i), func(ctx context.Context) (string, error) {
				w, err := b.worldOf(c, jobs, f.percentage)
				if err != nil {
					return "", err
				}
				if results[i], err = w.FillUp(ctx, openb.PodsOf(jobs), uint64(firstSeed+i), until); err != nil {
					return "", err
				}
				return fmt.Sprintf("%.2f %% allocated", 100*results[i].At(until)), nil
			}})
		}
	}
	if err := playAll(ctx, tasks, b.progress); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "\nFilling %d nodes, %d seeds; %s:\n", len(b.world.Nodes), seeds, f.title)
	report := &simulate.Report{Arms: arms}
	if err := report.WriteText(b.out); err != nil || f.picture == "" {
		return err
	}
	p := &picture{Arms: arms, Until: until, Resource: gpuMemory, Nodes: len(b.world.Nodes), FirstSeed: firstSeed}
	return b.draw(f.picture, p.Write)
}

// draw writes a picture.
func (b *bench) draw(name string, write func(io.Writer) error) error {
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		return err
	}
	name = filepath.Join(pictures, name)
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = write(f)
	fmt.Fprintln(b.out, "picture:", name)
	return errors.Join(err, f.Close())
}

// comeAndGo compares contenders while pods are created and deleted.
func (b *bench) comeAndGo(ctx context.Context) error {
	seeds, end := b.seeds, time.Duration(hours*time.Hour)
	var names []string
	var results [][]*replay.Result
	var tasks []task
	arms := []contender{bestFit, fgdKnown, leastWasteLearned, leastAllocatedFirst, leastWasteFirst}
	if b.arms != "" {
		wanted := strings.Split(b.arms, ";")
		arms = slices.DeleteFunc(arms, func(c contender) bool { return !slices.Contains(wanted, c.name) })
	}
	for _, c := range arms {
		of := make([]*replay.Result, seeds)
		names, results = append(names, c.name), append(results, of)
		for i := range seeds {
			seed := uint64(firstSeed + i)
			tasks = append(tasks, task{fmt.Sprintf("pods come and go: %s, seed %d", c.name, seed), func(ctx context.Context) (string, error) {
				w, err := b.worldOf(c, b.jobs, 100)
				if err != nil {
					return "", err
				}
				jobs, err := replay.Arrivals(w, b.jobs, replay.Load{Offered: b.load, For: end, MinLifetime: time.Minute, MaxLifetime: 6 * time.Hour}, seed)
				if err != nil {
					return "", err
				}
				if of[i], err = replay.Play(ctx, w, jobs, seed, end); err != nil {
					return "", err
				}
				return fmt.Sprintf("%.2f %% served, mean wait %.1f s", 100*of[i].Served, of[i].Waited.Seconds()), nil
			}})
		}
	}
	if err := playAll(ctx, tasks, b.progress); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "\nPods that come and go, load %.2f, %d hours, %d seeds:\n", b.load, hours, seeds)
	if err := replay.Report(b.out, names, results); err != nil {
		return err
	}
	return b.draw("placement-waits.svg", func(w io.Writer) error { return replay.Picture(w, names, results) })
}

// playAll plays as many tasks at once as there are cores, and stops at the first error.
func playAll(ctx context.Context, tasks []task, progress io.Writer) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	var mu sync.Mutex
	done := 0
	for _, t := range tasks {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			result, err := t.play(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", t.title, err)
			}
			mu.Lock()
			defer mu.Unlock()
			done++
			fmt.Fprintf(progress, "%3d of %d: %s: %s\n", done, len(tasks), t.title, result)
			return nil
		})
	}
	return group.Wait()
}
