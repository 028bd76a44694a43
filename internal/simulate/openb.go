package simulate

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/gpushare"
)

// This file reads openb, the trace published with the FGD paper (alibaba/clusterdata,
// cluster-trace-gpu-v2023), as nodes and pods of gpushare: a GPU has 1000 units of
// memory.

const (
	gpuMemory = gpushare.Memory
	gpuCount  = gpushare.Count
	// modelLabel and modelAnnotation are the defaults of the policy GPUMemory.
	modelLabel      = "nvidia.com/gpu.product"
	modelAnnotation = "outboard.dev/gpu-models"
	// traceNamespace is the namespace of the pods of a trace.
	traceNamespace = "trace"
	// traceUnits is the memory of a GPU: the trace counts thousandths.
	traceUnits = 1000
	// traceMaxPods is more than fit on any node: the trace has no such limit.
	traceMaxPods = 100000
)

// ReadOpenB reads a node list (sn,cpu_milli,memory_mib,gpu,model) or a pod list
// (name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,
// deletion_time,scheduled_time), depending on the header. Some pod lists end with gpu_milli: then
// pods allow any model, come at once, and stay.
func ReadOpenB(r io.Reader) (*Objects, []Job, error) {
	o, jobs := &Objects{}, []Job(nil)
	err := readTable(r, []table{
		{[]string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}, func(row *record) { o.Nodes = append(o.Nodes, traceNode(row)) }},
		{[]string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, func(row *record) { jobs = append(jobs, traceJob(row)) }},
	})
	if err != nil {
		return nil, nil, err
	}
	return o, jobs, o.check()
}

func traceNode(row *record) *corev1.Node {
	gpus := row.number("gpu")
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: row.text("sn"), Labels: map[string]string{}}}
	n.Status.Capacity = quantities(row.number("cpu_milli"), row.number("memory_mib"))
	n.Status.Capacity[corev1.ResourcePods] = *resource.NewQuantity(traceMaxPods, resource.DecimalSI)
	if gpus > 0 {
		n.Labels[modelLabel] = row.text("model")
		n.Status.Capacity[gpuMemory] = *resource.NewQuantity(traceUnits*gpus, resource.DecimalSI)
		n.Status.Capacity[gpuCount] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	return n
}

func traceJob(row *record) Job {
	created, deleted := row.number("creation_time"), row.number("deletion_time")
	gpus, milli := row.number("num_gpu"), row.number("gpu_milli")
	requests := quantities(row.number("cpu_milli"), row.number("memory_mib"))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: traceNamespace, Name: row.text("name"), UID: types.UID(row.text("name"))},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	if gpus > 0 {
		requests[gpuMemory] = *resource.NewQuantity(gpus*milli, resource.DecimalSI)
		if models := row.text("gpu_spec"); models != "" {
			pod.Annotations = map[string]string{modelAnnotation: strings.ReplaceAll(models, "|", ",")}
		}
	}
	if gpus > 1 {
		pod.Labels = map[string]string{gpuCount: strconv.FormatInt(gpus, 10)}
	}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}}
	return Job{Pod: pod, Created: seconds(created), Lifetime: seconds(deleted - created)}
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

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

// table is a kind of table: its required columns, and the function that reads a line.
type table struct {
	columns []string
	each    func(*record)
}

// readTable reads a table of one of the kinds.
func readTable(r io.Reader, kinds []table) error {
	reader := csv.NewReader(r)
	header, err := reader.Read()
	if err != nil {
		return fmt.Errorf("reading the header: %w", err)
	}
	row := &record{columns: map[string]int{}}
	for i, name := range header {
		row.columns[strings.TrimSpace(name)] = i
	}
	lacks := func(name string) bool { _, ok := row.columns[name]; return !ok }
	kind := slices.IndexFunc(kinds, func(t table) bool { return !slices.ContainsFunc(t.columns, lacks) })
	if kind < 0 {
		return fmt.Errorf("the columns %s are neither those of a node list nor those of a pod list", strings.Join(header, ", "))
	}
	for {
		row.fields, err = reader.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		line, _ := reader.FieldPos(0)
		if kinds[kind].each(row); row.err != nil {
			return fmt.Errorf("line %d: %w", line, row.err)
		}
	}
}

// Count returns how much of the resource the nodes have, with its unit: GPUs for GPU memory, if the
// nodes report how many GPUs they have.
func Count(nodes []*corev1.Node, name corev1.ResourceName) (float64, string) {
	sum, gpus := int64(0), int64(0)
	for _, n := range nodes {
		all, count := n.Status.Allocatable[name], n.Status.Capacity[gpuCount]
		sum, gpus = sum+all.Value(), gpus+count.Value()
	}
	if name == gpuMemory && gpus > 0 {
		return float64(gpus), "GPUs"
	}
	return float64(sum), string(name)
}
