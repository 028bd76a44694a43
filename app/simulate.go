package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/service"
	"outboard.dev/outboard/internal/simulate"
	"outboard.dev/outboard/internal/wiring"
	"outboard.dev/outboard/policy"
)

// maxFitting is how many more pods --count-fitting tries to place at most.
const maxFitting = 100000

// maxMean is the greatest --mean-requested. Somebody who sets more means a percentage.
const maxMean = 10

// simulateFormats are the formats of simulate.
var simulateFormats = []string{string(simulate.Text), string(simulate.JSON), "yaml", string(simulate.CSV), string(simulate.Markdown)}

type simulateOptions struct {
	types                    config.Types
	nodes, pods              []string
	configs                  []string
	profile                  string
	resource                 string
	startEmpty, known        bool
	seed                     uint64
	seeds                    int
	maxRequested             float64
	meanRequested            float64 // 0: pods do not end
	hours                    float64
	percentage               int
	extenderWeight           int64
	mostAllocated            bool
	tiesByName               bool
	countFitting             string
	listPods                 bool
	svg, output              string
	minLifetime, maxLifetime time.Duration
}

func simulateCommand(types config.Types) *cobra.Command {
	types.Unserved = true
	o := simulateOptions{types: types}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Simulate how policies fill a cluster, and compare them",
		Long: `Measure without a cluster how well policies fill one. The policies of a configuration
decide about pod after pod as they do for kube-scheduler, which calls all profiles. Its own part
(resources, node affinity, taints, sampling of nodes, its scores, random selection of equal
nodes) is simulated. The command compares several configurations, each with several seeds.

Nodes and pods are manifests, as "kubectl get nodes,pods -A -o yaml" prints them, or the
CSV files of the openb trace (with the header "sn,cpu_milli,…" or "name,cpu_milli,…").
Pods that are on a node stay there. If pods of a file run, the pending ones arrive first,
once each, and then pods like the running ones, until they have requested --max-requested of
the capacity. If all pods of the files are pending, more pods like them arrive. Pods of
DaemonSets and static pods belong to their nodes: they stay, and no more like them arrive.
The output says which pods arrive.

With --mean-requested, pods arrive and end for --hours instead, and wait if they fit on no
node. With --count-fitting, the command counts how many pods like the one in that file fit.
With --list-pods, it places the pods of the files once each, in their order, and lists the node and
the devices of each.

Pods with ResourceClaims get the devices that kube-scheduler would allocate to them, from
ResourceSlices in the files.

The same input and seed give the same result.`,
		Example: `  kubectl get nodes,pods -A -o yaml > now.yaml
  outboard simulate --nodes now.yaml --config outboard.yaml --config other.yaml --svg fill.svg
  outboard simulate --nodes now.yaml --config outboard.yaml --count-fitting pod.yaml
  outboard simulate --nodes nodes.yaml --pods pods.yaml --config outboard.yaml --list-pods`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(cmd.Flags().Changed); err != nil {
				return err
			}
			return o.run(cmd)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.nodes, "nodes", nil, "files with nodes, and pods if --pods is not given")
	flags.StringSliceVar(&o.pods, "pods", nil, "files with pods")
	flags.StringSliceVar(&o.configs, "config", nil, "configuration files of Outboard to compare; without any, pods are placed without Outboard")
	flags.StringVar(&o.profile, "profile", "", "path of the only profile to simulate")
	complete(cmd, "profile", completeConfiguredProfiles(types, func() []string { return o.configs }))
	flags.StringVar(&o.resource, "resource", "aliyun.com/gpu-mem", "resource in which allocation is measured")
	flags.BoolVar(&o.startEmpty, "start-empty", false, "begin with an empty cluster: pods that are on a node arrive again, except pods of DaemonSets and static pods")
	flags.BoolVar(&o.known, "pods-known-in-advance", false, "give policies the list of all pods before the run; without it, they learn from pods as these arrive")
	flags.Uint64Var(&o.seed, "seed", 42, "first seed")
	flags.IntVar(&o.seeds, "seeds", 3, "number of seeds")
	flags.Float64Var(&o.maxRequested, "max-requested", 1.3, "stop when pods have requested this share of the capacity")
	flags.Float64Var(&o.meanRequested, "mean-requested", 0, "let pods arrive and end, and request this share of the capacity on average")
	flags.Float64Var(&o.hours, "hours", 48, "with --mean-requested: simulated hours")
	flags.DurationVar(&o.minLifetime, "min-lifetime", time.Minute, "with --mean-requested: minimum lifetime of a pod; shorter ones are raised to it")
	flags.DurationVar(&o.maxLifetime, "max-lifetime", 6*time.Hour, "with --mean-requested: maximum lifetime of a pod; longer ones are cut to it, and pods without a known lifetime get it")
	flags.IntVar(&o.percentage, "percentage-of-nodes-to-score", 0, "kube-scheduler's percentageOfNodesToScore; 0 is its adaptive default")
	flags.Int64Var(&o.extenderWeight, "extender-weight", 0, "the weight of each extender in kube-scheduler's configuration; 0: as setup scheduler writes it, the sum of the weights of its policies")
	flags.BoolVar(&o.mostAllocated, "most-allocated", false, "kube-scheduler's NodeResourcesFit prefers full nodes (MostAllocated)")
	flags.BoolVar(&o.tiesByName, "break-ties-by-name", false, "a tie goes to the first node by name, instead of a random one")
	flags.StringVar(&o.countFitting, "count-fitting", "", "the manifest of one pod: count how many more pods like it fit")
	flags.BoolVar(&o.listPods, "list-pods", false, "place the pods once each, in the order of the files, and list the node and the devices of each; pods that run stay")
	choice(cmd, &o.output, "output", "o", "text, json, yaml, csv or markdown; json, yaml and csv have the figures of each seed", simulateFormats...)
	flags.StringVar(&o.svg, "svg", "", "write a chart of the result to this file, as SVG")
	return cmd
}

// stage is the cluster and the pods of a simulation.
type stage struct {
	world simulate.World
	plan  *simulate.Plan
	like  simulate.Job // of --count-fitting
	gpus  float64      // the capacity of the nodes, in unit
	unit  string
	notes []string // about the comparison of configurations
}

func (o *simulateOptions) run(cmd *cobra.Command) error {
	s, err := o.stage(cmd)
	if err != nil {
		return err
	}
	files := o.configs
	if len(files) == 0 {
		files = []string{""}
	}
	names := namesOf(files)
	worlds := make([]simulate.World, len(files))
	for i, file := range files {
		worlds[i] = s.world
		notes, err := o.configure(&worlds[i], file)
		if err != nil {
			return err
		}
		for _, note := range notes {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", names[i], note)
		}
	}
	if o.measures() {
		if err := o.compare(s, worlds, names); err != nil {
			return err
		}
	}
	if warmUp := time.Duration(o.hours * float64(time.Hour) / 4); o.meanRequested > 0 && o.maxLifetime > warmUp {
		fmt.Fprintf(cmd.ErrOrStderr(), "pods run for up to %v, but only the first quarter of --hours, %v, does not count, so the cluster may still be filling up later: increase --hours to %v, or reduce --max-lifetime\n",
			o.maxLifetime, warmUp, 4*o.maxLifetime.Hours())
	}
	progress := &simulate.Progress{W: cmd.ErrOrStderr(), Terminal: isTerminal(cmd.ErrOrStderr()), Every: 500 * time.Millisecond, Now: time.Now}
	if o.listPods {
		return o.list(cmd, s, worlds, names)
	}
	var arms []simulate.Arm
	for i := range worlds {
		s.world = worlds[i]
		if o.countFitting != "" {
			if err := o.howMany(cmd, s, names[i]); err != nil {
				return err
			}
			continue
		}
		arm, err := o.play(cmd.Context(), s, names[i], progress)
		if err != nil {
			return err
		}
		arms = append(arms, arm)
	}
	return o.report(cmd, s, arms)
}

// compare returns an error if the figures of the configurations are relative to different
// capacities, and adds a note if pods count in units in some of them and by node in others.
func (o *simulateOptions) compare(s *stage, worlds []simulate.World, names []string) error {
	var inUnits, byNode []string
	for i := range worlds {
		if a, b := worlds[0].Capacity(), worlds[i].Capacity(); a != b {
			return fmt.Errorf("the capacity for %s is %d with %s and %d with %s, so that their figures cannot be compared: "+
				"give all of them policies that allocate the same, such as GPUMemory with the same sizesFrom, or simulate each alone", o.resource, a, names[0], b, names[i])
		}
		if worlds[i].AllocatesUnits() {
			inUnits = append(inUnits, names[i])
		} else {
			byNode = append(byNode, names[i])
		}
	}
	if len(inUnits) > 0 && len(byNode) > 0 {
		s.notes = append(s.notes, fmt.Sprintf("Not comparable: %s allocates %s in units such as GPUs, and %s counts only how much each node has in total.",
			strings.Join(inUnits, ", "), o.resource, strings.Join(byNode, ", ")))
	}
	return nil
}

// namesOf returns a unique name for each configuration: that of its file, with as many folders as
// needed.
func namesOf(files []string) []string {
	names := make([]string, len(files))
	for i, file := range files {
		if names[i] = "kube-scheduler alone"; file == "" {
			continue
		}
		parts := strings.Split(strings.TrimSuffix(filepath.ToSlash(filepath.Clean(file)), filepath.Ext(file)), "/")
		same := func(length int) int {
			count := 0
			for _, other := range files {
				path := strings.TrimSuffix(filepath.ToSlash(filepath.Clean(other)), filepath.Ext(other))
				if strings.HasSuffix("/"+path, "/"+strings.Join(parts[len(parts)-length:], "/")) {
					count++
				}
			}
			return count
		}
		length := 1
		for length < len(parts) && same(length) > 1 {
			length++
		}
		names[i] = strings.Join(parts[len(parts)-length:], "/")
	}
	unique := slices.Clone(names)
	for i, file := range files {
		if slices.Contains(names[:i], names[i]) || slices.Contains(names[i+1:], names[i]) {
			unique[i] = fmt.Sprintf("%s (%d)", filepath.ToSlash(file), i+1)
		}
	}
	return unique
}

// validate checks the flags. changed says which ones are on the command line.
func (o *simulateOptions) validate(changed func(flag string) bool) error {
	ignored, because := []string{"hours", "min-lifetime", "max-lifetime"}, "goes with --mean-requested, with which pods arrive and end"
	switch {
	case o.listPods:
		ignored, because = append(ignored, "mean-requested", "max-requested", "seeds", "count-fitting", "svg", "resource"), "does not go with --list-pods, which places each pod once"
	case o.countFitting != "":
		ignored, because = append(ignored, "mean-requested", "max-requested", "seeds"), "does not go with --count-fitting, which counts pods that arrive once and stay"
	case o.meanRequested > 0:
		ignored, because = []string{"max-requested"}, "does not go with --mean-requested, where pods arrive for --hours"
	}
	for _, flag := range ignored {
		if changed(flag) {
			return fmt.Errorf("--%s %s", flag, because)
		}
	}
	switch {
	case len(o.nodes) == 0:
		return errors.New("--nodes is missing: it names a file with the nodes, as kubectl get nodes,pods -A -o yaml prints it")
	case o.seeds < 1 || o.seeds > 1000:
		return fmt.Errorf("--seeds=%d: must be between 1 and 1000", o.seeds)
	case !(o.maxRequested > 0 && o.maxRequested <= 100):
		return fmt.Errorf("--max-requested=%v: must be more than 0, and at most 100", o.maxRequested)
	case !(o.meanRequested >= 0 && o.meanRequested <= maxMean):
		return fmt.Errorf("--mean-requested=%v: must be between 0 and %d, where 1 is the whole capacity", o.meanRequested, maxMean)
	case !(o.hours > 0 && o.hours <= 24*366):
		return fmt.Errorf("--hours=%v: must be more than 0, and a year at most", o.hours)
	case o.percentage < 0 || o.percentage > 100:
		return fmt.Errorf("--percentage-of-nodes-to-score=%d: must be between 0 and 100", o.percentage)
	case o.extenderWeight < 0 || o.extenderWeight > 1<<20:
		return fmt.Errorf("--extender-weight=%d: must be 0 or more", o.extenderWeight)
	case o.minLifetime <= 0 || o.maxLifetime < o.minLifetime:
		return fmt.Errorf("--min-lifetime=%v --max-lifetime=%v: must be more than 0, the first not more than the second", o.minLifetime, o.maxLifetime)
	case o.countFitting != "" && o.output != string(simulate.Text):
		return fmt.Errorf("--output=%s: with --count-fitting there is only text", o.output)
	case o.listPods && !slices.Contains(formats, o.output):
		return fmt.Errorf("--output=%s: with --list-pods, it is text, json or yaml", o.output)
	case o.svg != "" && (o.meanRequested > 0 || o.countFitting != ""):
		return fmt.Errorf("--svg shows how a cluster fills up: it does not go with --mean-requested or --count-fitting")
	}
	if o.svg != "" {
		if _, err := os.Stat(filepath.Dir(o.svg)); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
	}
	return oneOf("output", o.output, simulateFormats...)
}

// stage reads nodes and pods.
func (o *simulateOptions) stage(cmd *cobra.Command) (*stage, error) {
	s := &stage{world: simulate.World{
		Resource: corev1.ResourceName(o.resource),
		Scheduler: simulate.Scheduler{
			PercentageOfNodesToScore: o.percentage, ResourceScore: simulate.LeastAllocated, FirstOfEqual: o.tiesByName,
		},
	}}
	if o.mostAllocated {
		s.world.Scheduler.ResourceScore = simulate.MostAllocated
	}
	var files []simulate.File
	for _, name := range append(append([]string{}, o.nodes...), o.pods...) {
		file, err := readNamed(name)
		if err != nil {
			return nil, err
		}
		files = append(files, *file)
	}
	s.plan = simulate.NewPlan(files, o.startEmpty)
	s.world.Nodes, s.world.Running, s.world.Pending, s.world.Devices = s.plan.Nodes, s.plan.Running, s.plan.Pending, s.plan.Devices
	if o.known {
		s.world.Known = append(append([]simulate.Job{}, s.plan.Pending...), s.plan.Mix...)
	}
	if len(s.world.Nodes) == 0 {
		return nil, fmt.Errorf("there are no nodes in %s", strings.Join(o.nodes, ", "))
	}
	if o.countFitting != "" {
		if err := o.readLike(s); err != nil {
			return nil, err
		}
	}
	for _, note := range missingClaims(&s.world.Devices, o.arriving(s)) {
		fmt.Fprintln(cmd.ErrOrStderr(), note)
	}
	if o.measures() {
		if err := o.measurable(s); err != nil {
			return nil, err
		}
	}
	s.gpus, s.unit = simulate.Count(s.world.Nodes, s.world.Resource)
	return s, nil
}

// measures reports whether the result is how much of a resource is allocated.
func (o *simulateOptions) measures() bool { return o.countFitting == "" && !o.listPods }

// measurable returns an error if allocation cannot be measured in the resource.
func (o *simulateOptions) measurable(s *stage) error {
	if s.world.Capacity() == 0 {
		return fmt.Errorf("no node has any %s: set --resource to a resource of the nodes (%s)", o.resource, simulate.Resources(s.world.Nodes))
	}
	if s.plan.Demand(s.world.Resource) == 0 {
		return fmt.Errorf("no pod of the simulation requests %s: set --resource to another resource, or --pods to other pods (%s)",
			o.resource, strings.Join(s.plan.Text("in turn"), " "))
	}
	return nil
}

// configure sets the extenders of the world, and the policies that allocate resources, to those of
// the configuration. It returns notes about what in the configuration is not simulated.
func (o *simulateOptions) configure(w *simulate.World, file string) (notes []string, err error) {
	if file == "" {
		return nil, nil
	}
	c, _, err := readConfig(file, o.types)
	if err != nil {
		return nil, err
	}
	if err := wiring.OneScheduler(c); err != nil && o.profile == "" {
		return nil, fmt.Errorf("%s: choose a profile with --profile: %w", file, err)
	}
	w.Scheduler.Ignored = c.IgnoredByScheduler()
	var soft []simulate.Extender
	var others []string // with their policies
	for i := range c.Profiles {
		p := &c.Profiles[i]
		if o.profile != "" && p.Path != o.profile {
			var policies []string
			for _, q := range p.Policies {
				policies = append(policies, q.Name)
			}
			others = append(others, fmt.Sprintf("%s with %s", p.Path, strings.Join(policies, ", ")))
			continue
		}
		x := simulate.Extender{Verb: p.OnlyVerb(), Weight: cmp.Or(o.extenderWeight, p.ExtenderWeight())}
		for _, r := range p.ManagedResources {
			x.Managed = append(x.Managed, corev1.ResourceName(r.Name))
		}
		for _, q := range p.Policies {
			if allocator, ok := q.Policy.(policy.Reserver); ok {
				w.Allocators = append(w.Allocators, allocator)
			}
		}
		if x.Engine, err = service.EngineOf(p, nil); err != nil {
			return nil, err
		}
		if len(p.ManagedResources) > 0 || p.Allocator() != "" {
			w.Extenders = append(w.Extenders, x)
		} else {
			soft = append(soft, x) // kube-scheduler calls ignorable extenders last
		}
	}
	if w.Extenders = append(w.Extenders, soft...); len(w.Extenders) == 0 {
		return nil, fmt.Errorf("%s has no profile at %q", file, o.profile)
	}
	if len(others) > 0 {
		notes = append(notes, fmt.Sprintf("other profiles are not simulated (%s): pods are placed as if kube-scheduler called only %s", strings.Join(others, "; "), o.profile))
	}
	var signals []string
	for i := range c.Signals {
		signals = append(signals, c.Signals[i].Name)
	}
	if len(signals) > 0 {
		notes = append(notes, fmt.Sprintf("signals are not read (%s): policies see them as stale", strings.Join(signals, ", ")))
	}
	return notes, nil
}

// play simulates one arm with all seeds.
func (o *simulateOptions) play(ctx context.Context, s *stage, name string, progress *simulate.Progress) (simulate.Arm, error) {
	arm := simulate.Arm{Name: name}
	for i := range o.seeds {
		seed := o.seed + uint64(i)
		title := fmt.Sprintf("%s, seed %d", name, seed)
		if o.meanRequested == 0 {
			f, err := s.world.FillUp(ctx, s.plan.Mix, seed, o.maxRequested, progress.Of(title))
			if err != nil {
				return arm, err
			}
			arm.Filled = append(arm.Filled, f)
			progress.Done(title, fmt.Sprintf("%.2f %% allocated", 100*f.At(o.maxRequested)))
			continue
		}
		until := time.Duration(o.hours * float64(time.Hour))
		jobs, err := s.world.Arrivals(s.plan.Mix, simulate.Load{Offered: o.meanRequested, For: until, MinLifetime: o.minLifetime, MaxLifetime: o.maxLifetime}, seed)
		if err != nil {
			return arm, err
		}
		r, err := s.world.Replay(ctx, jobs, seed, until, progress.Of(title))
		if err != nil {
			return arm, err
		}
		arm.Replayed = append(arm.Replayed, r)
		progress.Done(title, fmt.Sprintf("%.2f %% served", 100*r.Served))
	}
	return arm, nil
}

func (o *simulateOptions) report(cmd *cobra.Command, s *stage, arms []simulate.Arm) error {
	if o.countFitting != "" {
		return nil
	}
	report, arriving := simulate.FilledReport(arms, o.maxRequested, s.gpus, s.unit), fmt.Sprintf("until the pods that have arrived request %.4g %% of the %s", 100*o.maxRequested, o.resource)
	if o.meanRequested > 0 {
		report, arriving = simulate.ReplayedReport(arms), fmt.Sprintf("and end for %v hours: if none waited, those that run would request %.4g %% of the %s on average", o.hours, 100*o.meanRequested, o.resource)
	}
	report.Notes, report.FirstSeed = append(s.plan.Text(arriving), s.notes...), o.seed
	if format := simulate.Format(o.output); format == simulate.CSV {
		fmt.Fprintln(cmd.ErrOrStderr(), strings.Join(report.Notes, "\n"))
	}
	write := func(w io.Writer) error { return report.Write(w, simulate.Format(o.output)) }
	if o.output == "yaml" {
		write = func(w io.Writer) error {
			return writeYAML(w, func(w io.Writer) error { return report.Write(w, simulate.JSON) })
		}
	}
	if err := write(cmd.OutOrStdout()); err != nil || o.svg == "" {
		return err
	}
	f, err := os.Create(o.svg)
	if err != nil {
		return err
	}
	picture := &simulate.Picture{
		Arms: arms, Until: o.maxRequested, Resource: o.resource, Amount: s.gpus, Unit: s.unit, Nodes: len(s.world.Nodes), FirstSeed: o.seed,
	}
	return errors.Join(picture.Write(f), f.Close())
}
