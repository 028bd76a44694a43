package schedulerperf

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	_ "k8s.io/component-base/logs/json/register"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"

	"outboard.dev/outboard/schedplugin"
	"outboard.dev/outboard/test/measure"
)

var large = flag.Bool("large", false, "run some workloads in larger sizes, instead of all in their smallest one")

// Sizes of larger workloads, by folder and test case. On two processors, each takes at most a minute.
var largeSizes = map[string]string{
	"misc/SchedulingBasic":                          "500Nodes",
	"affinity/SchedulingPodAffinity":                "500Nodes",
	"affinity/SchedulingPodAntiAffinity":            "500Nodes",
	"topology_spreading/TopologySpreading":          "500Nodes",
	"default_preemption/PreemptionAsync":            "500Nodes",
	"volumes/SchedulingCSIPVs":                      "500Nodes",
	"dra/SchedulingWithResourceClaim":               "2000pods_200nodes",
	"podgroup/gangscheduling/GangScheduling":        "100Nodes_10Gangs",
	"event_handling/EventHandlingPodDelete":         "50Nodes_500Pods",
	"misc/SchedulingWithMixedChurn":                 "1000Nodes",
	"workload_preemption/GangPreemptionBasic":       "100Nodes_1PreemptorGang_100Pods_Evicting_1000InitPods",
	"dra/consumablecapacity/ConsumableCapacity":     "empty_100nodes",
	"dra/partitionabledevices/Partitionable":        "empty_100nodes",
	"podgroup/tas/TopologyAwareScheduling":          "100Nodes_10Gangs",
	"topology_spreading/PreferredTopologySpreading": "500Nodes",
}

func TestMain(m *testing.M) {
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// BenchmarkSchedulerPerf runs the workloads with each arm, and prints what the arms took.
func BenchmarkSchedulerPerf(b *testing.B) {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		b.Fatal(err)
	}
	dir := strings.TrimSpace(string(module))
	// With -trimpath, as make compiles, the API server of the tests finds its files in these only.
	b.Setenv("TEST_SRCDIR", filepath.Dir(filepath.Dir(dir)))
	b.Setenv("TEST_WORKSPACE", ".")
	root := filepath.Join(dir, "test", "integration", "scheduler_perf")
	programs, err := filepath.Abs("../bin")
	if err != nil {
		b.Fatal(err)
	}
	b.Setenv("PATH", programs+string(os.PathListSeparator)+os.Getenv("PATH")) // has etcd
	outboard := filepath.Join(b.TempDir(), "outboard")
	if out, err := exec.Command("go", "-C", "../..", "build", "-o", outboard, "./cmd/outboard").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	b.Setenv("ARTIFACTS", b.TempDir()) // for the logs of the API server and kube-scheduler
	perf.PerfSchedulingLabelFilter = chosen
	folders, err := workloads(root)
	if err != nil {
		b.Fatal(err)
	}
	r := &report{took: map[string]map[string]took{}}
	for _, folder := range folders {
		for _, a := range arms {
			b.Run(folder.name+"/"+a.name, func(b *testing.B) {
				b.Chdir(filepath.Join(root, folder.name)) // paths in the file are relative
				folder.run(b, a, outboard, r)
			})
		}
	}
	r.print()
}

// run runs the workloads of a folder with an arm.
func (f *folder) run(b *testing.B, a arm, outboard string, r *report) {
	dir := b.TempDir()
	var address [2]string
	for i := range address {
		address[i] = freeAddress(b)
	}
	file, err := f.configure(dir, a, address[0])
	if err != nil {
		b.Fatal(err)
	}
	registry := frameworkruntime.Registry{}
	if a.plugin {
		registry[schedplugin.Name] = schedplugin.New(nil, nil)
	}
	items := filepath.Join(dir, "items")
	if err := flag.Set("data-items-dir", items); err != nil {
		b.Fatal(err)
	}
	prepare := func(tCtx ktesting.TContext) error {
		var process *outboardProcess
		if a.extender {
			if process, err = startOutboard(outboard, b.TempDir(), address, tCtx.RESTConfig()); err != nil {
				return err
			}
		}
		name, used := strings.TrimPrefix(tCtx.TB().Name(), b.Name()+"/"), measure.Used()
		tCtx.Cleanup(func() {
			t := took{processor: time.Duration((measure.Used() - used) * float64(time.Microsecond)), failed: tCtx.TB().Failed()}
			if process != nil {
				t.outboard, err = process.stop()
				if err != nil {
					tCtx.TB().Error(err)
				}
			}
			r.add(f.name+"/"+name, a.name, t)
		})
		return nil
	}
	perf.RunBenchmarkPerfScheduling(b, file, a.name, registry, perf.WithPrepareFn(prepare), perf.WithPodsSchedulingTimeout(2*time.Minute))
	if err := r.read(items, f.name, a.name); err != nil {
		b.Error(err)
	}
}

// took is what one workload took with one arm.
type took struct {
	processor, outboard time.Duration // of the API server, kube-scheduler and controllers, and of the extender
	perSecond           float64       // pods
	failed              bool
}

// report has what each workload took, by its name and the name of the arm.
type report struct{ took map[string]map[string]took }

func (r *report) add(workload, arm string, t took) {
	if r.took[workload] == nil {
		r.took[workload] = map[string]took{}
	}
	t.perSecond = cmp.Or(t.perSecond, r.took[workload][arm].perSecond)
	r.took[workload][arm] = t
}

func (r *report) print() {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "workload\tarm\tpods/s\tto stock\tprocessor time\tto stock\tof Outboard\t")
	var names []string
	for name := range r.took {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		stock := r.took[name][arms[0].name]
		for _, a := range arms {
			t, ok := r.took[name][a.name]
			if !ok {
				continue
			}
			speed, ratio, failed := "-", "-", ""
			if t.perSecond > 0 && stock.perSecond > 0 { // scheduler_perf measures workloads of more than a second
				speed, ratio = fmt.Sprintf("%.0f", t.perSecond), fmt.Sprintf("%.2f", t.perSecond/stock.perSecond)
			}
			if t.failed {
				failed = "failed"
			}
			total := t.processor + t.outboard
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%.2f\t%s\t%s\n", name, a.name, speed, ratio, total.Round(10*time.Millisecond),
				total.Seconds()/stock.processor.Seconds(), t.outboard.Round(10*time.Millisecond), failed)
		}
	}
	if err := table.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
