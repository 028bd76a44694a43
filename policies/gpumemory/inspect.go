package gpumemory

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Report lists every GPU of some nodes, and which pods hold what.
type Report struct {
	Unit  Unit         `json:"unit"`
	Nodes []NodeReport `json:"nodes"`
	// Error is why Nodes is empty, or "".
	Error string `json:"error,omitempty"`
}

// NodeReport lists every GPU of one node.
type NodeReport struct {
	Name string `json:"name"`
	// Problem is the code of the reason for which no pod gets any of the GPUs, and Reported what
	// the node reports; "" if there is none.
	Problem  string `json:"problem,omitempty"`
	Reported string `json:"reported,omitempty"`
	GPUs     []GPU  `json:"gpus"`
	// Unannotated are the pods of which nothing says which GPUs they have, in order of namespace
	// and name. They count on no GPU. Their Amount is the memory that they request, or 0 for whole
	// GPUs.
	Unannotated []GPUPod `json:"unannotated,omitempty"`
}

// inspection is the response of gpushare's own /inspect.
type inspection struct {
	Nodes []inspectedNode `json:"nodes"`
	Error string          `json:"error,omitempty"`
}

type inspectedNode struct {
	Name  string         `json:"name"`
	Total int64          `json:"totalGPU"`
	Used  int64          `json:"usedGPU"`
	GPUs  []inspectedGPU `json:"devs"`
}

type inspectedGPU struct {
	ID    int            `json:"id"`
	Total int64          `json:"totalGPU"`
	Used  int64          `json:"usedGPU"`
	Pods  []inspectedPod `json:"pods"`
}

type inspectedPod struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Used      int64  `json:"usedGPU"`
}

// Inspect implements policy.Inspector. At inspect and inspect/NODE it responds as the
// gpushare extender does, at gpus and gpus/NODE with a [Report].
func (p *gpuMemory) Inspect(view *snapshot.View, path string) (value any, found bool) {
	kind, name, one := strings.Cut(path, "/")
	if kind != "inspect" && kind != "gpus" {
		return nil, false
	}
	report := Report{Unit: p.config.Unit, Nodes: []NodeReport{}}
	for n := range view.All() {
		if one && n.Name != name {
			continue
		}
		if node := p.report(n); len(node.GPUs) > 0 || node.Problem != "" && kind == "gpus" {
			report.Nodes = append(report.Nodes, node)
		}
	}
	switch {
	case one && view.Node(name) == nil:
		report.Error = fmt.Sprintf("node %q not found", name)
	case one && len(report.Nodes) == 0:
		report.Error = fmt.Sprintf("node %q shares no GPUs", name)
	}
	if kind == "gpus" {
		return report, true
	}
	return report.inspection(), true
}

func (p *gpuMemory) report(n *snapshot.Node) NodeReport {
	report := NodeReport{Name: n.Name, GPUs: p.gpusOf(n), Unannotated: p.unannotated(n)}
	if u := p.usage.Of(n); u.reported != "" {
		report.Problem, report.Reported = u.problem.Code, u.reported
	}
	return report
}

func (r *Report) inspection() inspection {
	response := inspection{Nodes: []inspectedNode{}, Error: r.Error}
	for _, n := range r.Nodes {
		node := inspectedNode{Name: n.Name}
		for i := range n.GPUs {
			d := &n.GPUs[i]
			device := inspectedGPU{ID: d.Index, Total: d.Capacity, Used: d.Used, Pods: []inspectedPod{}}
			for _, pod := range d.Pods {
				device.Pods = append(device.Pods, inspectedPod{pod.Name, pod.Namespace, pod.Amount})
			}
			node.Total, node.Used = node.Total+d.Capacity, snapshot.AddAmounts(node.Used, d.Used)
			node.GPUs = append(node.GPUs, device)
		}
		response.Nodes = append(response.Nodes, node)
	}
	return response
}

func (p *gpuMemory) Units(view *snapshot.View) policy.UnitList {
	list := policy.UnitList{Resource: corev1.ResourceName(p.agent.resource()), Title: "GPU memory", Unit: string(p.config.Unit), Nodes: make([]policy.NodeUnits, 0, view.Len())}
	for n := range view.All() {
		if units := *p.units.Of(n); len(units) > 0 {
			list.Nodes = append(list.Nodes, policy.NodeUnits{Node: n.Name, Group: n.Object.Labels[p.config.ModelLabel], Units: units})
		}
	}
	return list
}

func (u *usage) units() []policy.Unit {
	units := make([]policy.Unit, len(u.all))
	for i := range u.all {
		d := &u.all[i]
		units[i] = policy.Unit{
			Name: strconv.Itoa(d.Index), Capacity: d.Capacity, Used: d.Used, Reserved: d.Reserved,
			Unhealthy: !d.Healthy || u.reported != "", Gone: d.Capacity == 0,
		}
	}
	return units
}
