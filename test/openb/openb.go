// Package openb reads the published files of the trace openb, for tests and benchmarks.
package openb

import (
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/simulate"
)

// Pods is the pod list from which the other pod lists of the trace are derived.
const Pods = "openb_pod_list_default.csv"

// Read reads the nodes of the trace, and one of its pod lists, from the folder.
func Read(dir, pods string) ([]*corev1.Node, []simulate.Job, error) {
	var nodes []*corev1.Node
	var jobs []simulate.Job
	for _, name := range []string{"openb_node_list_gpu_node.csv", pods} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return nil, nil, err
		}
		objects, more, err := simulate.ReadOpenB(f)
		f.Close()
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		nodes, jobs = append(nodes, objects.Nodes...), append(jobs, more...)
	}
	return nodes, jobs, nil
}
