package gpumemory

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
)

// fractioningReady is the condition of a node on which the agent runs.
const fractioningReady = "gpu-fractioning.nvidia.com/Ready"

// gpuFractioning is the protocol of kai-gpu-fractioning, which limits the memory of containers.
type gpuFractioning struct{ nvidia }

func (a *gpuFractioning) hardware(node *corev1.Node) hardware {
	hw := a.nvidia.hardware(node)
	if hw.problem != nil {
		return hw
	}
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == fractioningReady })
	if i < 0 {
		hw.problem, hw.reported = notFractioning, "no condition "+fractioningReady
	} else if c := &node.Status.Conditions[i]; c.Status != corev1.ConditionTrue {
		hw.problem, hw.reported = notFractioning, fmt.Sprintf("condition %s is %s (%.200q)", fractioningReady, c.Status, c.Message)
	}
	return hw
}

// request implements agent. Containers with different modes may not share a GPU.
func (a *gpuFractioning) request(pod *corev1.Pod) (*request, error) {
	r, err := a.nvidia.request(pod)
	if err != nil || r == nil || r.refused != nil {
		return r, err
	}
	for key, value := range pod.Annotations {
		if strings.HasPrefix(key, containerKey) && strings.HasSuffix(key, modeSuffix) && strings.TrimSpace(value) != "time-slicing" {
			r.refused = computeMode
		}
	}
	return r, nil
}

// annotations implements agent. It writes the memory, too, so that a change of the request after the
// decision has no effect.
func (a *gpuFractioning) annotations(ask policy.ReserveRequest, _ *request, given []policy.Amount, sizes []int64) map[string]string {
	all, _ := memoryOf(ask.Pod)
	devices := make([]string, len(given))
	for i := range given {
		devices[i] = given[i].Unit
	}
	written := map[string]string{}
	for _, name := range getting(ask.Pod, all) {
		m, ok := all[name]
		if !ok { // a whole GPU
			m = memory{slices.Min(sizes), slices.Min(sizes)}
		}
		written[containerKey+name+devicesSuffix] = strings.Join(devices, ",")
		written[containerKey+name+limitSuffix] = fmt.Sprintf("%dMi", m.limit)
		if m.request != m.limit {
			written[containerKey+name+requestSuffix] = fmt.Sprintf("%dMi", m.request)
		}
	}
	return written
}
