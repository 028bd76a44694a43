package main

import (
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/test/openb"
)

// This file draws mixes of pods that differ from the trace, to measure strategies with other pods.

// mixSeed is the seed of the mixes; the seeds of the runs determine the order of the pods.
const mixSeed = 7

// mix is a mix of pods. With more than 0, share and several are the parts of what is
// asked of GPUs that pods with a share of one, and with several, ask for; cpuOnly is
// how many times as many pods without GPUs there are; restricted is the part of the
// pods with GPUs that are restricted to one model.
type mix struct {
	name                                string
	share, several, cpuOnly, restricted float64
}

var mixes = []mix{
	{name: "no CPU-only pods", cpuOnly: 0.01},
	{name: "2.5 times the CPU-only pods", cpuOnly: 2.5},
	{name: "40 % asked in shares", share: 0.4},
	{name: "all asked in shares", share: 1},
	{name: "20 % asked by pods with several GPUs", several: 0.2},
	{name: "50 % asked by pods with several GPUs", several: 0.5},
	{name: "10 % of pods restricted to a model", restricted: 0.1},
	{name: "33 % of pods restricted to a model", restricted: 0.33},
}

type class int

const (
	cpuOnly class = iota
	shares
	whole
	several
	classes
)

const (
	gpuCount        = "aliyun.com/gpu-count"
	modelLabel      = "nvidia.com/gpu.product"
	modelAnnotation = "outboard.dev/gpu-models"
)

func classOf(pod *corev1.Pod) class {
	switch units := gpuUnits(pod); {
	case units == 0:
		return cpuOnly
	case pod.Labels[gpuCount] != "":
		return several
	case units < 1000:
		return shares
	}
	return whole
}

func gpuUnits(pod *corev1.Pod) int64 {
	quantity := pod.Spec.Containers[0].Resources.Requests[gpuMemory]
	return quantity.Value()
}

// draw draws the same number of pods, with the additional ones among them.
func (m mix) draw(jobs []openb.Job, nodes []*corev1.Node) []openb.Job {
	rng := rand.New(rand.NewPCG(mixSeed, 0))
	weights := m.weights(jobs)
	total := 0.0
	for _, j := range jobs {
		total += weights[classOf(j.Pod)]
	}
	drawn := make([]openb.Job, 0, len(jobs))
	for range jobs {
		at := rng.Float64() * total
		i := slices.IndexFunc(jobs, func(j openb.Job) bool {
			at -= weights[classOf(j.Pod)]
			return at < 0
		})
		j := jobs[max(0, i)]
		if classOf(j.Pod) != cpuOnly && rng.Float64() < m.restricted {
			j.Pod = restrict(j.Pod, nodes, rng)
		}
		drawn = append(drawn, j)
	}
	return drawn
}

// weights are the factors by which pods of a class are more frequent than in the trace.
func (m mix) weights(jobs []openb.Job) [classes]float64 {
	var asked [classes]float64
	for _, j := range jobs {
		asked[classOf(j.Pod)] += float64(gpuUnits(j.Pod))
	}
	all := asked[shares] + asked[whole] + asked[several]
	weights := [classes]float64{1, 1, 1, 1}
	rest := func(part float64, of ...class) {
		sum := 0.0
		for _, c := range of {
			sum += asked[c]
		}
		for _, c := range of {
			weights[c] = (1 - part) * all / sum
		}
	}
	switch {
	case m.share > 0:
		weights[shares] = m.share * all / asked[shares]
		rest(m.share, whole, several)
	case m.several > 0:
		weights[several] = m.several * all / asked[several]
		rest(m.several, shares, whole)
	}
	if m.cpuOnly > 0 {
		weights[cpuOnly] = m.cpuOnly
	}
	return weights
}

// restrict returns the pod restricted to the model of any node on which it would fit: models of
// many nodes with few GPUs become scarce.
func restrict(pod *corev1.Pod, nodes []*corev1.Node, rng *rand.Rand) *corev1.Pod {
	for {
		n := nodes[rng.IntN(len(nodes))]
		capacity := n.Status.Capacity[gpuMemory]
		if capacity.Value() >= gpuUnits(pod) {
			pod = pod.DeepCopy()
			pod.Annotations = map[string]string{modelAnnotation: n.Labels[modelLabel]}
			return pod
		}
	}
}
