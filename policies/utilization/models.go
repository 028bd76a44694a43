package utilization

// rounding absorbs what arithmetic adds to a fraction: 0.3+0.1 is not more than 0.4.
const rounding = 1e-9

// score returns how good a node with this load is for the pod, 0..100. The resource with the lower
// score counts.
func (s *ScoringStrategy) score(l load) float64 {
	if s.Type == TargetLoadPacking {
		return targetLoadPacking(100*l.total(), float64(*s.TargetUtilization))
	}
	return 100 * (1 - min(l.total(), 1))
}

// targetLoadPacking is Trimaran's strategy (kubernetes-sigs/scheduler-plugins,
// pkg/trimaran/targetloadpacking): with p percent used and the target t, the score rises from t to
// 100 up to the target, and falls from t to 0 above it.
func targetLoadPacking(p, t float64) float64 {
	switch {
	case p <= t+100*rounding:
		return (100-t)*p/t + t
	case p <= 100:
		return t * (100 - p) / (100 - t)
	}
	return 0
}
