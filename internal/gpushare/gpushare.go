// Package gpushare has the names of the resources of gpushare, which policies, simulations and
// conversions share.
package gpushare

const (
	// Memory is the resource by which pods request a part of a GPU.
	Memory = "aliyun.com/gpu-mem"
	// Count is a resource of nodes, and of pods that request whole GPUs; and a label of pods that
	// request shares of several GPUs.
	Count = "aliyun.com/gpu-count"
)
