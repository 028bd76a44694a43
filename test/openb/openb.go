// Package openb reads the trace published with the paper about Fragmentation Gradient Descent
// (alibaba/clusterdata, cluster-trace-gpu-v2023), as nodes and pods of gpushare: a GPU has 1000 units
// of memory.
package openb

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/gpushare"
	"outboard.dev/outboard/snapshot"
)

// Pods is the pod list from which the other pod lists of the trace are derived.
const Pods = "openb_pod_list_default.csv"

const (
	// modelLabel and modelAnnotation are the defaults of the policy GPUMemory.
	modelLabel      = "nvidia.com/gpu.product"
	modelAnnotation = "outboard.dev/gpu-models"
	// Units is the memory of a GPU: the trace counts thousandths.
	Units = 1000
	// maxPods is more than fit on any node: the trace has no such limit.
	maxPods = 100000
)

// Job is a pod, and how long it runs; 0 means forever.
type Job struct {
	Pod      *corev1.Pod
	Lifetime time.Duration
}

// PodsOf returns the pods of the jobs.
func PodsOf(jobs []Job) []*corev1.Pod {
	pods := make([]*corev1.Pod, len(jobs))
	for i, j := range jobs {
		pods[i] = j.Pod
	}
	return pods
}

// Read reads the nodes of the trace, and one of its pod lists, from the folder. Some pod lists end
// with the column gpu_milli: then pods allow any model, and stay.
func Read(dir, pods string) (nodes []*corev1.Node, jobs []Job, err error) {
	err = read(filepath.Join(dir, "openb_node_list_gpu_node.csv"), func(row *record) {
		nodes = append(nodes, node(row))
	}, "sn", "cpu_milli", "memory_mib", "gpu", "model")
	if err != nil {
		return nil, nil, err
	}
	err = read(filepath.Join(dir, pods), func(row *record) {
		jobs = append(jobs, job(row))
	}, "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
	return nodes, jobs, err
}

// Spread returns so many of the nodes, evenly spread over the list; all if count is 0.
func Spread(all []*corev1.Node, count int) []*corev1.Node {
	if count <= 0 || count >= len(all) {
		return all
	}
	some := make([]*corev1.Node, count)
	for i := range some {
		some[i] = all[i*len(all)/count]
	}
	return some
}

func node(row *record) *corev1.Node {
	gpus, name := row.number("gpu"), row.text("sn")
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{}}}
	n.Status.Capacity = quantities(row.number("cpu_milli"), row.number("memory_mib"))
	n.Status.Capacity[corev1.ResourcePods] = *resource.NewQuantity(maxPods, resource.DecimalSI)
	if gpus > 0 {
		n.Labels[modelLabel] = row.text("model")
		n.Status.Capacity[gpushare.Memory] = *resource.NewQuantity(Units*gpus, resource.DecimalSI)
		n.Status.Capacity[gpushare.Count] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	n.Status.Allocatable = n.Status.Capacity
	return n
}

func job(row *record) Job {
	gpus, milli := row.number("num_gpu"), row.number("gpu_milli")
	requests := quantities(row.number("cpu_milli"), row.number("memory_mib"))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "trace", Name: row.text("name"), UID: types.UID(row.text("name"))},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	if gpus > 0 {
		requests[gpushare.Memory] = *resource.NewQuantity(gpus*milli, resource.DecimalSI)
		if models := row.text("gpu_spec"); models != "" {
			pod.Annotations = map[string]string{modelAnnotation: strings.ReplaceAll(models, "|", ",")}
		}
	}
	if gpus > 1 {
		pod.Labels = map[string]string{gpushare.Count: strconv.FormatInt(gpus, 10)}
	}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}}
	snapshot.DefaultRequests(pod)
	return Job{pod, time.Duration(row.number("deletion_time")-row.number("creation_time")) * time.Second}
}

func quantities(cpuMilli, memoryMiB int64) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(cpuMilli, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memoryMiB<<20, resource.BinarySI),
	}
}

// record is one line of a table. err is its first error.
type record struct {
	columns map[string]int
	fields  []string
	err     error
}

// text returns what is in the column, "" if the table has no such column.
func (r *record) text(column string) string {
	i, ok := r.columns[column]
	if !ok {
		return ""
	}
	return r.fields[i]
}

// number returns the number in the column, 0 if the field is empty.
func (r *record) number(column string) int64 {
	text := r.text(column)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if (err != nil || n < 0 || n > 1<<40) && r.err == nil {
		r.err = fmt.Errorf("%s is %q: must be a whole number, 0 or more", column, text)
	}
	return n
}

// read reads a table with at least these columns.
func read(name string, each func(*record), columns ...string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	reader := csv.NewReader(f)
	header, err := reader.Read()
	if err != nil {
		return fmt.Errorf("%s: reading the header: %w", name, err)
	}
	row := &record{columns: map[string]int{}}
	for i, column := range header {
		row.columns[strings.TrimSpace(column)] = i
	}
	for _, column := range columns {
		if _, ok := row.columns[column]; !ok {
			return fmt.Errorf("%s: there is no column %s", name, column)
		}
	}
	for {
		if row.fields, err = reader.Read(); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		line, _ := reader.FieldPos(0)
		if each(row); row.err != nil {
			return fmt.Errorf("%s: line %d: %w", name, line, row.err)
		}
	}
}
