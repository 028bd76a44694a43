package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/config"
	"outboard.dev/outboard/simulate"
)

// maxMore is how many more pods --more tries to place at most.
const maxMore = 100000

type simulateOptions struct {
	types                    config.Types
	nodes, pods              []string
	configs                  []string
	profile                  string
	resource                 string
	empty, known             bool
	seed                     uint64
	seeds                    int
	until, load              float64
	hours                    float64
	percentage               int
	extenderWeight           int64
	mostAllocated            bool
	first                    bool
	more, picture            string
	minLifetime, maxLifetime time.Duration
}

func simulateCommand(types config.Types) *cobra.Command {
	o := simulateOptions{types: types}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Play pods against a cluster in memory, and compare policies",
		Long: `Find out, without a cluster, how well policies fill one: the policies of a
configuration decide about pod after pod as they do for kube-scheduler, whose own part
(resources, affinity to nodes, taints, sampling of nodes, its scores, random ties) is
simulated as well. Several configurations are compared, each with several seeds.

Nodes and pods are manifests, as "kubectl get nodes,pods -A -o yaml" prints them, or the
CSV files of the openb trace (with the header "sn,cpu_milli,…" or "name,cpu_milli,…").
Pods that are on a node stay there, and pods like those that are not come one after the
other until as much as --until says has arrived; if all are on a node, pods like them.

With --load pods come and go for --hours instead, and wait when they fit nowhere. With
--more it is counted how many pods like the one in that file fit.

The same input and seed give the same result.`,
		Example: `  kubectl get nodes,pods -A -o yaml > now.yaml
  outboard simulate --nodes now.yaml --config outboard.yaml --config other.yaml --picture fill.svg
  outboard simulate --nodes now.yaml --config outboard.yaml --more pod.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.nodes, "nodes", nil, "files with nodes, and pods if --pods is not given")
	flags.StringSliceVar(&o.pods, "pods", nil, "files with pods")
	flags.StringSliceVar(&o.configs, "config", nil, "a configuration of Outboard; several are compared; without any, pods are placed without Outboard")
	flags.StringVar(&o.profile, "profile", "", "the path of the profile; needed if a configuration has several")
	flags.StringVar(&o.resource, "resource", "aliyun.com/gpu-mem", "the resource that allocation is measured in")
	flags.BoolVar(&o.empty, "empty", false, "begin with an empty cluster: pods that are on a node come again like the others")
	flags.BoolVar(&o.known, "known", false, "let policies learn from all pods before the first comes")
	flags.Uint64Var(&o.seed, "seed", 42, "the first seed")
	flags.IntVar(&o.seeds, "seeds", 3, "how many seeds")
	flags.Float64Var(&o.until, "until", 1.3, "until how much of the resource has arrived, in parts of what there is")
	flags.Float64Var(&o.load, "load", 0, "let pods come and go: how much of the resource they ask for on average, in parts of what there is")
	flags.Float64Var(&o.hours, "hours", 48, "with --load: for how many hours of the simulation")
	flags.DurationVar(&o.minLifetime, "min-lifetime", time.Minute, "with --load: shorter lifetimes are raised to this")
	flags.DurationVar(&o.maxLifetime, "max-lifetime", 6*time.Hour, "with --load: longer lifetimes are cut to this; it is also that of pods of which none is known")
	flags.IntVar(&o.percentage, "percentage-of-nodes-to-score", 0, "kube-scheduler's percentageOfNodesToScore; 0 is its adaptive default")
	flags.Int64Var(&o.extenderWeight, "extender-weight", 1, "the extender's weight in kube-scheduler's configuration")
	flags.BoolVar(&o.mostAllocated, "most-allocated", false, "kube-scheduler's NodeResourcesFit prefers full nodes (MostAllocated)")
	flags.BoolVar(&o.first, "first-of-equal", false, "of equal nodes take the first in order of name instead of any")
	flags.StringVar(&o.more, "more", "", "a manifest of one pod: count how many more like it fit")
	flags.StringVar(&o.picture, "picture", "", "write a picture of the result to this file (SVG)")
	return cmd
}

// stage is what is played.
type stage struct {
	world simulate.World
	jobs  []simulate.Job
	gpus  float64 // how much there is of the resource, in unit
	unit  string
}

func (o *simulateOptions) run(cmd *cobra.Command) error {
	if err := o.validate(); err != nil {
		return err
	}
	s, err := o.stage()
	if err != nil {
		return err
	}
	names := o.configs
	if len(names) == 0 {
		names = []string{""}
	}
	progress := &simulate.Progress{W: cmd.ErrOrStderr(), Every: 500 * time.Millisecond, Now: time.Now}
	var arms []simulate.Arm
	for _, file := range names {
		extender, shortName, err := o.extender(file)
		if err != nil {
			return err
		}
		s.world.Extender = extender
		if o.more != "" {
			if err := o.howMany(cmd, s, shortName); err != nil {
				return err
			}
			continue
		}
		arm, err := o.play(cmd.Context(), s, shortName, progress)
		if err != nil {
			return err
		}
		arms = append(arms, arm)
	}
	return o.report(cmd, s, arms)
}

func (o *simulateOptions) validate() error {
	switch {
	case len(o.nodes) == 0:
		return fmt.Errorf("--nodes is needed: a file with the nodes")
	case o.seeds < 1 || o.seeds > 1000:
		return fmt.Errorf("--seeds=%d: must be between 1 and 1000", o.seeds)
	case !(o.until > 0 && o.until <= 100):
		return fmt.Errorf("--until=%v: must be more than 0, and at most 100", o.until)
	case !(o.load >= 0 && o.load <= 100):
		return fmt.Errorf("--load=%v: must be between 0 and 100", o.load)
	case !(o.hours > 0 && o.hours <= 24*366):
		return fmt.Errorf("--hours=%v: must be more than 0, and a year at most", o.hours)
	case o.percentage < 0 || o.percentage > 100:
		return fmt.Errorf("--percentage-of-nodes-to-score=%d: must be between 0 and 100", o.percentage)
	case o.extenderWeight < 1 || o.extenderWeight > 1<<20:
		return fmt.Errorf("--extender-weight=%d: must be 1 or more", o.extenderWeight)
	case o.minLifetime <= 0 || o.maxLifetime < o.minLifetime:
		return fmt.Errorf("--min-lifetime=%v --max-lifetime=%v: must be more than 0, the first not more than the second", o.minLifetime, o.maxLifetime)
	case o.picture != "" && (o.load > 0 || o.more != ""):
		return fmt.Errorf("--picture shows how a cluster fills up: it does not go with --load or --more")
	}
	return nil
}

// stage reads nodes and pods.
func (o *simulateOptions) stage() (*stage, error) {
	s := &stage{world: simulate.World{
		Resource: corev1.ResourceName(o.resource),
		Scheduler: simulate.Scheduler{
			PercentageOfNodesToScore: o.percentage, ResourceScore: simulate.LeastAllocated, FirstOfEqual: o.first, ExtenderWeight: o.extenderWeight,
		},
	}}
	if o.mostAllocated {
		s.world.Scheduler.ResourceScore = simulate.MostAllocated
	}
	var all simulate.Objects
	for _, file := range append(append([]string{}, o.nodes...), o.pods...) {
		objects, jobs, err := readObjects(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all.Nodes, all.Pods, s.jobs = append(all.Nodes, objects.Nodes...), append(all.Pods, objects.Pods...), append(s.jobs, jobs...)
	}
	running, waiting := all.Divide()
	s.jobs = append(s.jobs, waiting...)
	if o.empty || len(s.jobs) == 0 {
		s.jobs = append(s.jobs, simulate.Again(running)...)
	}
	s.world.Nodes = all.Nodes
	if !o.empty {
		s.world.Running = running
	}
	if o.known {
		s.world.Known = s.jobs
	}
	if len(all.Nodes) == 0 {
		return nil, fmt.Errorf("there are no nodes in %s", strings.Join(o.nodes, ", "))
	}
	s.gpus, s.unit = simulate.Count(all.Nodes, s.world.Resource)
	return s, nil
}

// readObjects reads manifests, or a table of a trace.
func readObjects(file string) (*simulate.Objects, []simulate.Job, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if filepath.Ext(file) == ".csv" {
		return simulate.ReadOpenB(f)
	}
	objects, err := simulate.ReadManifests(f)
	return objects, nil, err
}

// extender makes what the configuration says, and a name for it.
func (o *simulateOptions) extender(file string) (simulate.Extender, string, error) {
	if file == "" {
		return simulate.Extender{}, "kube-scheduler alone", nil
	}
	c, err := config.Load(file, o.types)
	if err != nil {
		return simulate.Extender{}, "", listed(err)
	}
	var found *config.Profile
	for i := range c.Profiles {
		if p := &c.Profiles[i]; p.Path == o.profile || o.profile == "" {
			if found != nil {
				return simulate.Extender{}, "", fmt.Errorf("%s has several profiles: choose one with --profile", file)
			}
			found = p
		}
	}
	if found == nil {
		return simulate.Extender{}, "", fmt.Errorf("%s has no profile at %q", file, o.profile)
	}
	extender := simulate.Extender{Fine: found.Resolution == config.Fine}
	for _, r := range found.ManagedResources {
		extender.Managed = append(extender.Managed, corev1.ResourceName(r.Name))
	}
	extender.Engine, err = engineOf(found, nil)
	return extender, strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), err
}

// play plays one arm with all seeds.
func (o *simulateOptions) play(ctx context.Context, s *stage, name string, progress *simulate.Progress) (simulate.Arm, error) {
	arm := simulate.Arm{Name: name}
	for i := range o.seeds {
		seed := o.seed + uint64(i)
		title := fmt.Sprintf("%s, seed %d", name, seed)
		if o.load == 0 {
			f, err := s.world.FillUp(ctx, s.jobs, seed, o.until, progress.Of(title))
			if err != nil {
				return arm, err
			}
			arm.Filled = append(arm.Filled, f)
			progress.Done(title, fmt.Sprintf("%.2f %% allocated", 100*f.At(o.until)))
			continue
		}
		until := time.Duration(o.hours * float64(time.Hour))
		jobs, err := s.world.Arrivals(s.jobs, simulate.Load{Offered: o.load, For: until, MinLifetime: o.minLifetime, MaxLifetime: o.maxLifetime}, seed)
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

// howMany counts how many more pods fit.
func (o *simulateOptions) howMany(cmd *cobra.Command, s *stage, name string) error {
	objects, _, err := readObjects(o.more)
	if err != nil {
		return fmt.Errorf("%s: %w", o.more, err)
	}
	if len(objects.Pods) != 1 {
		return fmt.Errorf("%s holds %d pods: it must be one", o.more, len(objects.Pods))
	}
	like := simulate.Again(objects.Pods)[0].Pod
	count, err := s.world.HowMany(cmd.Context(), like, maxMore, o.seed)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d more pods like %s/%s fit\n", name, count, like.Namespace, like.Name)
	return err
}

func (o *simulateOptions) report(cmd *cobra.Command, s *stage, arms []simulate.Arm) error {
	switch {
	case o.more != "":
		return nil
	case o.load > 0:
		return simulate.WriteReplayed(cmd.OutOrStdout(), arms)
	}
	if err := simulate.WriteFilled(cmd.OutOrStdout(), arms, o.until, s.gpus, s.unit); err != nil || o.picture == "" {
		return err
	}
	f, err := os.Create(o.picture)
	if err != nil {
		return err
	}
	if err := simulate.WritePicture(f, arms, o.until); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
