package schedulerperf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"sigs.k8s.io/yaml"
)

// chosen is the label of the workloads that run.
const chosen = "chosen"

// excluded are workloads that cannot end, by folder, test case and name, for all arms.
var excluded = map[string]bool{
	// The Go test of the folder registers the features that the workload counts.
	"nodedeclaredfeatures/NodeDeclaredFeaturesEnabled/5Nodes5DeclaredFeatures": true,
}

// excludedWithExtender are those that cannot end with an extender that has the verb preempt.
var excludedWithExtender = map[string]bool{
	// kube-scheduler sends victims on other nodes, and accepts none from an extender (convertPodUIDToPod in pkg/scheduler/extender.go).
	"default_preemption/PreemptionPodGroupDisruptionMode/FastTest_PodGroupDisruptionMode_All": true,
}

// A folder is one of scheduler_perf, which has a file of test cases with workloads.
type folder struct {
	name  string
	cases []map[string]any // as in the file
}

// workloads returns the folders below root with the workloads that run, in order of their names.
func workloads(root string) (folders []*folder, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "performance-config.yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		f := &folder{name: name}
		if err := yaml.Unmarshal(text, &f.cases); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		f.choose()
		if len(f.cases) > 0 {
			folders = append(folders, f)
		}
		return nil
	})
	return folders, err
}

// choose keeps the workloads that run, without the figures that Kubernetes' own machines reach.
func (f *folder) choose() {
	f.cases = slices.DeleteFunc(f.cases, func(c map[string]any) bool {
		all, _ := c["workloads"].([]any)
		kept := slices.DeleteFunc(all, func(w any) bool { return !f.runs(c, w.(map[string]any)) })
		for _, w := range kept {
			w := w.(map[string]any)
			w["labels"] = []any{chosen}
			delete(w, "threshold")
		}
		c["workloads"] = kept
		return len(kept) == 0
	})
}

// runs reports whether a workload of a test case runs: the size of largeSizes, or what Kubernetes runs as an integration test.
func (f *folder) runs(c, workload map[string]any) bool {
	if excluded[f.path(c, workload)] {
		return false
	}
	if *large {
		return workload["name"] == largeSizes[fmt.Sprintf("%s/%s", f.name, c["name"])]
	}
	ofCase, _ := c["labels"].([]any)
	labels, _ := workload["labels"].([]any)
	labels = slices.Concat(ofCase, labels)
	return slices.Contains(labels, any("integration-test")) && !slices.Contains(labels, any("performance"))
}

// path returns the name of a workload of a test case.
func (f *folder) path(c, workload map[string]any) string {
	return fmt.Sprintf("%s/%s/%s", f.name, c["name"], workload["name"])
}

// configure writes the test cases to dir with a configuration of kube-scheduler, which may be the case's own, as changed by change. It
// returns the path of the file. The working directory is that of the folder.
func (f *folder) configure(dir string, a arm, address string) (string, error) {
	cases := make([]map[string]any, 0, len(f.cases))
	for i, c := range f.cases {
		workloads := slices.DeleteFunc(slices.Clone(c["workloads"].([]any)), func(w any) bool {
			return a.extender && excludedWithExtender[f.path(c, w.(map[string]any))]
		})
		if len(workloads) == 0 {
			continue
		}
		scheduler := map[string]any{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
		if own, ok := c["schedulerConfigPath"].(string); ok {
			text, err := os.ReadFile(own)
			if err != nil {
				return "", err
			}
			if err := yaml.Unmarshal(text, &scheduler); err != nil {
				return "", fmt.Errorf("%s: %w", own, err)
			}
		}
		a.configure(scheduler, address)
		path := filepath.Join(dir, fmt.Sprintf("scheduler-%d.yaml", i))
		if err := write(path, scheduler); err != nil {
			return "", err
		}
		changed := maps.Clone(c)
		changed["schedulerConfigPath"], changed["workloads"] = path, workloads
		cases = append(cases, changed)
	}
	path := filepath.Join(dir, "performance-config.yaml")
	return path, write(path, cases)
}

func write(path string, value any) error {
	text, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// read adds the pods per second that scheduler_perf has written to dir. It writes none for a workload that takes less than a second.
func (r *report) read(dir, folder, arm string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("scheduler_perf has written no results")
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var items perf.DataItems
		if err := json.Unmarshal(text, &items); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, item := range items.DataItems {
			if item.Labels["Metric"] != "SchedulingThroughput" {
				continue
			}
			// The name ends with that of the workload, and with the namespace of the pods.
			_, name, _ := strings.Cut(item.Labels["Name"], "/"+arm+"/")
			for workload, took := range r.took {
				if t, ok := took[arm]; ok && strings.HasPrefix(folder+"/"+name+"/", workload+"/") {
					t.perSecond = item.Data["Average"]
					took[arm] = t
				}
			}
		}
	}
	return nil
}
