package app

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/service"
	"outboard.dev/outboard/internal/simulate"
	"outboard.dev/outboard/internal/wiring"
	"outboard.dev/outboard/policy"
)

const (
	// maxFitting is how many more pods --count-fitting tries to place at most.
	maxFitting = 100000
	// firstSeed is the first seed; the others are the numbers after it.
	firstSeed = 42
	// untilRequested is what the pods that arrive request, relative to the capacity.
	untilRequested = 1.3
)

type simulateOptions struct {
	types        config.Types
	configs      []string
	profile      string
	resource     string
	startEmpty   bool
	seeds        int
	countFitting string
	listPods     bool
	output       outputFlag
}

func simulateCommand(types config.Types) *cobra.Command {
	types.Unserved = true
	o := simulateOptions{types: types, seeds: 3}
	cmd := &cobra.Command{
		Use:   "simulate FILE...",
		Short: "Simulate how policies fill a cluster, and compare them",
		Long: `Measure without a cluster how well policies fill one. The policies of a configuration
decide about pod after pod as they do for kube-scheduler, which calls all profiles. Its own part
(resources, node affinity, taints, sampling of nodes, its scores, random selection of equal
nodes) is simulated. The command compares several configurations, each with several seeds.

Each FILE has nodes and pods, as "kubectl get nodes,pods -A -o yaml" prints them. Pods that are on a
node stay there. If pods of a file run, the pending ones arrive first, once each, and then pods like
the running ones, until they have requested 130 % of the capacity. If all pods of the files
are pending, more pods like them arrive. Pods of DaemonSets and static pods belong to their
nodes: they stay, and no more like them arrive. The output says which pods arrive.

With --count-fitting, the command counts how many pods like the one in that file fit. With
--list-pods, it places the pods of the files once each, in their order, and lists the node and the
devices of each.

Pods with ResourceClaims get the devices that kube-scheduler would allocate to them, from
ResourceSlices in the files.

The same input gives the same result.`,
		Example: `  kubectl get nodes,pods -A -o yaml > now.yaml
  outboard simulate now.yaml --config outboard.yaml --config other.yaml
  outboard simulate now.yaml --config outboard.yaml --count-fitting pod.yaml
  outboard simulate nodes.yaml pods.yaml --config outboard.yaml --list-pods`,
		Args: func(cmd *cobra.Command, files []string) error {
			if len(files) == 0 {
				return fmt.Errorf("FILE is missing: it has the nodes, as kubectl get nodes,pods -A -o yaml prints them: usage: %s", cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			if err := o.validate(cmd.Flags().Changed); err != nil {
				return err
			}
			return o.run(cmd, files)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.configs, "config", nil, "configuration files of Outboard to compare; without any, pods are placed without Outboard")
	flags.StringVar(&o.profile, "profile", "", "path of the only profile to simulate")
	flags.StringVar(&o.resource, "resource", "aliyun.com/gpu-mem", "resource in which allocation is measured")
	flags.BoolVar(&o.startEmpty, "start-empty", false, "begin with an empty cluster: pods that are on a node arrive again, except pods of DaemonSets and static pods")
	flags.Var(number{&o.seeds, 1, 1000}, "seeds", "how many seeds: each decides in which order pods arrive, and which of equal nodes they get")
	flags.StringVar(&o.countFitting, "count-fitting", "", "the manifest of one pod: count how many more pods like it fit")
	flags.BoolVar(&o.listPods, "list-pods", false, "place the pods once each, in the order of the files, and list the node and the devices of each; of equal nodes they get the first by name")
	o.output.register(cmd)
	return cmd
}

// validate checks the flags. changed says which ones are on the command line.
func (o *simulateOptions) validate(changed func(flag string) bool) error {
	var ignored []string
	with := ""
	switch {
	case o.listPods:
		ignored, with = []string{"count-fitting", "seeds", "resource"}, "--list-pods, which places each pod once"
	case o.countFitting != "":
		ignored, with = []string{"seeds", "resource", "output"}, "--count-fitting, which prints a number"
	}
	for _, flag := range ignored {
		if changed(flag) {
			return fmt.Errorf("--%s does not go with %s", flag, with)
		}
	}
	return o.output.check()
}

// stage is the cluster and the pods of a simulation.
type stage struct {
	world simulate.World
	plan  *simulate.Plan
	like  *corev1.Pod // of --count-fitting
	notes []string    // about the comparison of configurations
}

func (o *simulateOptions) run(cmd *cobra.Command, files []string) error {
	s, err := o.stage(cmd, files)
	if err != nil {
		return err
	}
	names := []string{"kube-scheduler alone"}
	worlds := []simulate.World{s.world}
	if len(o.configs) > 0 {
		names, worlds = namesOf(o.configs), make([]simulate.World, len(o.configs))
	}
	for i, file := range o.configs {
		worlds[i] = s.world
		notes, err := o.configure(&worlds[i], file)
		if err != nil {
			return err
		}
		for _, note := range notes {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", names[i], note)
		}
	}
	switch {
	case o.listPods:
		return o.list(cmd, s, worlds, names)
	case o.countFitting != "":
		for i := range worlds {
			if err := howMany(cmd, s, &worlds[i], names[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return o.fill(cmd, s, worlds, names)
}

// stage reads the files.
func (o *simulateOptions) stage(cmd *cobra.Command, names []string) (*stage, error) {
	var files []*simulate.Objects
	for _, name := range names {
		file, err := readManifests(name)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	plan := simulate.NewPlan(files, o.startEmpty)
	s := &stage{plan: plan, world: simulate.World{
		Nodes: plan.Nodes, Running: plan.Running, Pending: plan.Pending, Devices: plan.Devices,
		Resource:  corev1.ResourceName(o.resource),
		Scheduler: simulate.Scheduler{ResourceScore: simulate.LeastAllocated, FirstOfEqual: o.listPods},
	}}
	if len(s.world.Nodes) == 0 {
		return nil, fmt.Errorf("there are no nodes in %s", strings.Join(names, ", "))
	}
	if o.countFitting != "" {
		file, err := readManifests(o.countFitting)
		if err != nil {
			return nil, err
		}
		if len(file.Pods) != 1 {
			return nil, fmt.Errorf("%s has %d pods: must be 1", o.countFitting, len(file.Pods))
		}
		s.like = simulate.Again(file.Pods)[0]
		s.world.Devices.Add(&file.Devices)
	}
	for _, note := range missingClaims(&s.world.Devices, o.arriving(s)) {
		fmt.Fprintln(cmd.ErrOrStderr(), note)
	}
	return s, nil
}

func readManifests(name string) (*simulate.Objects, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	objects, err := simulate.ReadManifests(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return objects, nil
}

// arriving returns the pods that the simulation places.
func (o *simulateOptions) arriving(s *stage) []*corev1.Pod {
	switch {
	case o.countFitting != "":
		return []*corev1.Pod{s.like}
	case o.listPods && s.plan.Again && !o.startEmpty:
		return s.plan.Pending // and no copies of those that run
	}
	return slices.Concat(s.plan.Pending, s.plan.Mix)
}

// missingClaims describes which claims and templates of the pods are in no file, and so why these
// pods fit on no node.
func missingClaims(devices *simulate.Devices, arriving []*corev1.Pod) (notes []string) {
	pods := map[string]int{}
	for _, pod := range arriving {
		for _, object := range devices.Missing(pod) {
			pods[object]++
		}
	}
	for _, object := range slices.Sorted(maps.Keys(pods)) {
		fit := "1 pod fits"
		if n := pods[object]; n > 1 {
			fit = fmt.Sprintf("%d pods fit", n)
		}
		notes = append(notes, fmt.Sprintf("there is no %s in the files, so %s on no node: with kubectl, get resourceslices,deviceclasses,"+
			"resourceclaims,resourceclaimtemplates,devicetaintrules as well", object, fit))
	}
	return notes
}

// namesOf returns the names of the files without folders and extensions, or their paths if two names
// are equal.
func namesOf(files []string) []string {
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	}
	if sorted := slices.Sorted(slices.Values(names)); len(slices.Compact(sorted)) < len(files) {
		return files
	}
	return names
}

// configure sets the extenders of the world, and the policies that allocate resources, to those of
// the configuration. It returns notes about what in the configuration is not simulated.
func (o *simulateOptions) configure(w *simulate.World, file string) (notes []string, err error) {
	c, err := readConfig(file, nil, o.types)
	if err != nil {
		return nil, err
	}
	if err := wiring.OneScheduler(c); err != nil && o.profile == "" {
		return nil, fmt.Errorf("%s: choose a profile with --profile: %w", file, err)
	}
	w.Scheduler.Ignored = c.IgnoredByScheduler()
	var soft []simulate.Extender
	for i := range c.Profiles {
		p := &c.Profiles[i]
		if o.profile != "" && p.Path != o.profile {
			continue
		}
		x := simulate.Extender{Verb: p.OnlyVerb(), Weight: p.ExtenderWeight()}
		for _, r := range p.ManagedResources {
			x.Managed = append(x.Managed, corev1.ResourceName(r.Name))
		}
		for _, q := range p.Policies {
			if allocator, ok := q.Policy.(policy.Reserver); ok {
				w.Allocators = append(w.Allocators, allocator)
			}
		}
		if x.Engine, err = service.EngineOf(c, p, nil); err != nil {
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
	var signals []string
	for i := range c.Signals {
		signals = append(signals, c.Signals[i].Name)
	}
	if len(signals) > 0 {
		notes = append(notes, fmt.Sprintf("signals are not read (%s): policies see them as stale", strings.Join(signals, ", ")))
	}
	return notes, nil
}

// fill fills the cluster up with each configuration, and writes a report.
func (o *simulateOptions) fill(cmd *cobra.Command, s *stage, worlds []simulate.World, names []string) error {
	for i := range worlds {
		for _, allocator := range worlds[i].Allocators {
			if s.plan.CountBy(allocator, s.world.Resource) {
				for j := range worlds {
					worlds[j].Scheduler.Ignored = append(slices.Clone(worlds[j].Scheduler.Ignored), s.world.Resource)
				}
			}
		}
	}
	if err := o.measurable(s, worlds, names); err != nil {
		return err
	}
	arriving := fmt.Sprintf("until the pods that have arrived request %.4g %% of the %s", 100*untilRequested, o.resource)
	report := &simulate.Report{FirstSeed: firstSeed, Notes: append(s.plan.Text(arriving), s.notes...)}
	for i := range worlds {
		arm := simulate.Arm{Name: names[i]}
		for seed := range uint64(o.seeds) {
			filled, err := worlds[i].FillUp(cmd.Context(), s.plan.Mix, firstSeed+seed, untilRequested)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s, seed %d: %.2f %% allocated\n", arm.Name, firstSeed+seed, 100*filled.At(untilRequested))
			arm.Filled = append(arm.Filled, filled)
		}
		report.Arms = append(report.Arms, arm)
	}
	return o.output.write(cmd.OutOrStdout(), report.WriteJSON, report.WriteText)
}

// measurable returns an error if allocation cannot be measured in the resource, or the figures of the
// configurations are relative to different capacities. It adds a note if pods count in units in some
// of them and by node in others.
func (o *simulateOptions) measurable(s *stage, worlds []simulate.World, names []string) error {
	if s.world.Capacity() == 0 {
		return fmt.Errorf("no node has any %s: set --resource to a resource of the nodes, such as cpu", o.resource)
	}
	if s.plan.Demand(s.world.Resource) == 0 {
		return fmt.Errorf("no pod of the simulation requests %s: set --resource to another resource, or add a FILE with other pods (%s)",
			o.resource, strings.Join(s.plan.Text("in turn"), " "))
	}
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

// howMany counts how many more pods fit, and says why the next one does not.
func howMany(cmd *cobra.Command, s *stage, w *simulate.World, name string) error {
	count, reasons, err := w.HowMany(cmd.Context(), s.like, maxFitting, firstSeed)
	if err != nil {
		return err
	}
	pods, beside := "pods like %s/%s fit", ""
	if count == 1 {
		pods = "pod like %s/%s fits"
	}
	if n := len(s.plan.Pending); n > 0 {
		beside = fmt.Sprintf(" (without placing the pending pods first: %d)", n)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %d more "+pods+"%s\n", name, count, s.like.Namespace, s.like.Name, beside)
	if len(reasons) > 0 {
		texts := make([]string, len(reasons))
		for i, reason := range reasons {
			texts[i] = fmt.Sprintf("%d %s", reason.Nodes, reason.Text)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "  the next one fits on no node: %s\n", strings.Join(texts, ", "))
	}
	return nil
}

// list places the pods with each configuration, and writes where they are.
func (o *simulateOptions) list(cmd *cobra.Command, s *stage, worlds []simulate.World, names []string) error {
	type configuration struct {
		Name string               `json:"name"`
		Pods []simulate.Placement `json:"pods"`
	}
	var all []configuration
	for i := range worlds {
		worlds[i].Pending = nil // they are among those that arrive
		placements, err := worlds[i].Place(cmd.Context(), o.arriving(s), firstSeed)
		if err != nil {
			return err
		}
		all = append(all, configuration{names[i], placements})
	}
	return o.output.write(cmd.OutOrStdout(), inJSON(map[string]any{"configurations": all}), func(w io.Writer) error {
		for i := range all {
			if i > 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprintf(w, "%s:\n", all[i].Name)
			if err := simulate.WritePlacements(w, all[i].Pods); err != nil {
				return err
			}
		}
		return nil
	})
}
