package gpumemory

import (
	"strings"

	"outboard.dev/outboard/policy"
)

// containerToolkit is the protocol of the NRI plugin of NVIDIA's container toolkit. GPUs have the
// names that nvidia-ctk cdi generate gives them.
type containerToolkit struct{ nvidia }

func (a *containerToolkit) annotations(ask policy.ReserveRequest, _ *request, given []policy.Amount, _ []int64) map[string]string {
	all, _ := memoryOf(ask.Pod)
	devices := make([]string, len(given))
	for i := range given {
		devices[i] = "nvidia.com/gpu=" + given[i].Unit
	}
	written := map[string]string{}
	for _, name := range getting(ask.Pod, all) {
		written[cdiKey+"/container."+name] = strings.Join(devices, ",")
	}
	return written
}
