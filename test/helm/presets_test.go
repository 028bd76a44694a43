package helm

import (
	"fmt"
	"slices"
	"strings"

	"outboard.dev/outboard/test/controlplane"
)

// nodes are of all kinds that the presets distinguish; all say that kai-gpu-fractioning is ready. The metrics API measures that node "image" is busy.
var nodes = []controlplane.NodeSpec{
	{Name: "plain"},
	{Name: "image", Images: map[string]int64{"docker.io/library/nginx:latest": 1 << 30}},
	{Name: "gpus", Resources: map[string]string{"aliyun.com/gpu-count": "2", "aliyun.com/gpu-mem": "32"}, Labels: map[string]string{"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "16384"}},
}

// usage is the measured CPU of nodes, of 8.
var usage = map[string]string{"plain": "1", "image": "7500m", "gpus": "1"}

// outcome is what must become of a pod.
type outcome struct {
	pod controlplane.PodSpec
	// on are the permitted nodes, separated by spaces; "" if the pod must wait, and then for the reason.
	on, reason string
	// gpu is the annotation with the index of its GPU.
	gpu string
	// allocations is whether it has an allocation, and stays whether it is created once, and stays when the preset is changed.
	allocations, stays bool
}

// outcomes has, for each preset, for the policies of docs/install.md and docs/signals.md, and for what docs/emergency.md leaves, pods in the order of their creation. By another preset, or without Outboard, some of them would be placed
// otherwise.
var outcomes = map[string][]outcome{
	"placement": { // image has two web pods when the third arrives
		{pod: web("web-1"), on: "image"},
		{pod: web("web-2"), on: "image"},
		{pod: web("web-3"), on: "plain gpus"},
	},
	"gpushare": { // in the end, 6 of 16 GiB are free on both GPUs
		{pod: gpuMemory("gpu-stays", 10), on: "gpus", gpu: "0", allocations: true, stays: true},
		{pod: gpuMemory("gpu-1", 10), on: "gpus", gpu: "1", allocations: true},
		{pod: gpuMemory("gpu-2", 10), reason: "Insufficient GPU Memory in one device"},
	},
	"gpu-sharing": { // the same
		{pod: share("share-stays", 10), on: "gpus", gpu: "0", allocations: true, stays: true},
		{pod: share("share-1", 10), on: "gpus", gpu: "1", allocations: true},
		{pod: share("share-2", 10), reason: "Insufficient GPU Memory in one device"},
	},
	"licenses": { // a namespace may have 4 of the 8 seats
		{pod: solver("solver-stays", 1), on: "plain image gpus", allocations: true, stays: true},
		{pod: solver("solver-1", 3), on: "plain image gpus", allocations: true},
		{pod: solver("solver-2", 1), reason: "license"},
	},
	"own": { // three web pods per node are permitted
		{pod: onPlain(web("web-1")), on: "plain"},
		{pod: onPlain(web("web-2")), on: "plain"},
		{pod: onPlain(web("web-3")), on: "plain"},
		{pod: onPlain(web("web-4")), reason: "reached their limit of matching pods"},
	},
	"stopped": { // the preset gpu-sharing without Outboard
		{pod: share("share-1", 1), reason: "outboard.outboard-system.svc"},
		{pod: web("web-1"), reason: "outboard.outboard-system.svc"},
	},
	"alone": { // kube-scheduler without entries
		{pod: web("web-1"), on: "plain image gpus"},
	},
	"temperature": { // of docs/signals.md: plain is too hot
		{pod: onPlain(web("web-1")), reason: "node(s) are too hot"},
		{pod: web("web-2"), on: "image gpus"},
	},
	"utilization": { // its image is on the busy node
		{pod: web("web-1"), on: "plain gpus"},
		{pod: web("web-2"), on: "plain gpus"},
	},
}

// The plugin of docs/extender-or-plugin.md has the policy of a preset.
func init() { outcomes["plugin"] = outcomes["gpu-sharing"] }

// early are pods that must wait while kube-scheduler has the file of the preset, and Outboard still has that of another one.
var early = map[string]outcome{
	"placement":   {pod: web("early"), on: "image"},
	"gpu-sharing": {pod: share("early", 1), on: "gpus", gpu: "0", allocations: true},
	"gpushare":    {pod: gpuMemory("early", 1), on: "gpus", gpu: "0", allocations: true},
	"licenses":    {pod: solver("early", 1), on: "plain image gpus", allocations: true},
}

func web(name string) controlplane.PodSpec {
	return controlplane.PodSpec{Name: name, Labels: map[string]string{"app": "web"}, Image: "nginx"}
}

func onPlain(pod controlplane.PodSpec) controlplane.PodSpec {
	pod.NodeSelector = map[string]string{"kubernetes.io/hostname": "plain"}
	return pod
}

func gpuMemory(name string, units int) controlplane.PodSpec {
	return controlplane.PodSpec{Name: name, Resources: map[string]string{"aliyun.com/gpu-mem": fmt.Sprint(units)}}
}

// share describes a pod that shares a GPU by NVIDIA's agents.
func share(name string, gib int) controlplane.PodSpec {
	return controlplane.PodSpec{Name: name, Annotations: map[string]string{"nvidia.com/container.main.gpu-memory.limit": fmt.Sprint(gib, "Gi")}}
}

func solver(name string, seats int) controlplane.PodSpec {
	return controlplane.PodSpec{Name: name, Annotations: map[string]string{"outboard.dev/licenses": fmt.Sprint("solver=", seats)}}
}

func (o outcome) permits(node string) bool { return slices.Contains(strings.Fields(o.on), node) }
