package utilization

import "math"

// rounding absorbs what arithmetic adds to a fraction: 0.3+0.1 is not more than 0.4.
const rounding = 1e-9

// leastDeviation is the deviation below which the Beta distribution counts as a step: a thousandth
// of a node.
const leastDeviation = 0.001

// score returns how good a node with this load is for the pod, 0..100. All strategies but one are
// published by others, with scores of 0..10 or 0..100. The resource with the lower score counts, as
// it does there.
func (s *ScoringStrategy) score(l load) float64 {
	mu := min(l.total(), 1)
	switch s.Type {
	case TargetLoadPacking:
		return targetLoadPacking(100*l.total(), float64(*s.TargetUtilization))
	case LoadVariationRisk:
		return loadVariationRisk(mu, min(l.deviation, 1), *s.Margin, *s.Sensitivity)
	case RiskOfOverload:
		return safeOverload(s.risk(l), float64(*s.MaxRisk)/100)
	}
	return 100 * (1 - mu)
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

// loadVariationRisk is Trimaran's strategy (pkg/trimaran/loadvariationriskbalancing): the risk is
// (mu + margin × sigma^(1/sensitivity)) / 2. With sensitivity 2 and margin 1 it is safe-balance of
// IBM/kube-safe-scheduler.
func loadVariationRisk(mu, sigma, margin, sensitivity float64) float64 {
	variation := min(margin*math.Pow(sigma, 1/sensitivity), 1)
	return 100 * (1 - (mu+variation)/2)
}

// safeOverload is the strategy of IBM/kube-safe-scheduler (safe/priority.go): 0 at the highest
// tolerated risk.
func safeOverload(risk, tolerated float64) float64 {
	return 100 * (1 - math.Sqrt(min(risk/tolerated, 1)))
}

// risk returns the probability that more than SafeUtilization is used.
func (s *ScoringStrategy) risk(l load) float64 {
	return overloadRisk(min(l.total(), 1), min(l.deviation, 1), float64(*s.SafeUtilization)/100)
}

// overloadRisk returns the probability that more than safe is used, if use has the Beta
// distribution with the mean mu and the standard deviation sigma, as in IBM/kube-safe-scheduler
// (safe/stats.go). No distribution on 0..1 deviates by more than √(mu(1-mu)). For such a sigma the
// original returns 1; this function returns the limit of the Beta distribution: all or nothing is
// used, and all with the probability mu.
func overloadRisk(mu, sigma, safe float64) float64 {
	most := mu * (1 - mu)
	switch {
	case sigma*sigma >= most:
		return mu
	case sigma >= leastDeviation:
		concentration := most/(sigma*sigma) - 1
		return 1 - betaCDF(safe, mu*concentration, (1-mu)*concentration)
	case mu <= safe+rounding:
		return 0
	}
	return 1
}
