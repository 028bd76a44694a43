package gpumemory

import "slices"

// choose returns the indices of the GPUs that the pod gets, in order; nil if too few of them fit.
//
// The device plugin does not know for which of several pending pods with the same request the
// kubelet calls, and takes the one that was bound first. So that this does not matter, a pod gets
// the GPU of another pod with the same request that has not been served yet, if it fits there,
// whatever the order. Otherwise it gets the preferred GPU, if that is set (0 or more) and fits.
func (p *gpuMemory) choose(r *request, u *usage, preferred int) []int {
	var fitting, together []int
	for i := range u.gpus {
		if r.fits(&u.gpus[i]) {
			fitting = append(fitting, i)
			if r.gpus == 1 && !r.whole() && u.unserved[r.memory]&(1<<i) != 0 {
				together = append(together, i)
			}
		}
	}
	if len(together) > 0 {
		fitting = together
	} else if r.gpus == 1 && slices.Contains(fitting, preferred) {
		return []int{preferred}
	}
	if int64(len(fitting)) < r.gpus {
		return nil
	}
	slices.SortStableFunc(fitting, func(i, j int) int {
		return p.config.GPUSelection.Compare(u.gpus[i].Free(), u.gpus[j].Free())
	})
	chosen := fitting[:r.gpus]
	slices.Sort(chosen)
	return chosen
}
