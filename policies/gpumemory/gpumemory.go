// Package gpumemory is the policy GPUMemory: shares of the memory of single GPUs, in
// the protocol of gpushare. README.md in this folder is its documentation.
//
// The policy has two halves. The first counts the GPUs of a node (node.go, gpushare.go) and says whether a pod fits there and
// which GPUs the pod gets (this file, choose.go). The second, ranking.go, ranks nodes and GPUs by what the pods that usually
// arrive can still use: it exists only with the scoring strategy LeastWaste, and also for pods without GPUs. gpus.go and
// inspect.go show the state of the GPUs to people and tools.
package gpumemory

import (
	"context"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/internal/placement/strategy"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/claims"
	"outboard.dev/outboard/snapshot"
)

// gpuMemory is the policy.
type gpuMemory struct {
	config   Config
	hardware *snapshot.ObjectFact[hardware]
	usage    *snapshot.Fact[usage]
	report   *snapshot.Fact[NodeReport]
	units    *snapshot.Fact[[]policy.Unit]
	ranker   *strategy.Ranker // nil: each node is scored alone
}

// newGPUMemory returns the policy that ranks nodes by the strategy, or scores each node alone if
// the strategy is nil.
func newGPUMemory(config Config, by *strategy.Strategy) *gpuMemory {
	p := &gpuMemory{config: config}
	p.hardware = snapshot.NewObjectFact(func(n *corev1.Node) hardware { return hardwareOf(n, &config) })
	p.usage = snapshot.NewFact(func(n *snapshot.Node) usage {
		return usageOf(n, n.Ledger(memoryResource), p.hardware.Of(n))
	})
	p.report = snapshot.NewFact(func(n *snapshot.Node) NodeReport {
		report := NodeReport{Name: n.Name, GPUs: GPUs(config, n), Unannotated: Unannotated(config, n)}
		if hw := p.hardware.Of(n); hw.reported != "" {
			report.Problem, report.Reported = hw.problem.Code, hw.reported
		}
		return report
	})
	p.units = snapshot.NewFact(func(n *snapshot.Node) []policy.Unit { return unitsOf(p.report.Of(n)) })
	if by != nil {
		shapes := &shapes{p}
		p.ranker = strategy.New(strategy.Options{
			Strategy: *by,
			Shapes:   func(strategy.Shapes, *snapshot.View, []*snapshot.Node) strategy.Shapes { return shapes },
			Node:     func(n *snapshot.Node) placement.Node { return p.room(n, p.usage.Of(n)) },
		})
	}
	return p
}

// Inputs implements policy.InputReader.
func (p *gpuMemory) Inputs() policy.Inputs {
	inputs := p.config.Inputs()
	inputs.ResourcesOnly = p.ranker == nil // a strategy ranks nodes for all pods, which use processors beside GPUs
	return inputs
}

// Inputs implements policy.InputReader.
func (c *Config) Inputs() policy.Inputs {
	return policy.Inputs{
		Resources:     []corev1.ResourceName{memoryResource, countResource},
		ResourcesOnly: c.ScoringStrategy.Type != LeastWaste,
		ClaimFields:   []string{"unit", "sizesFrom"},
		ConfigMaps:    []snapshot.ConfigMapSource{unhealthyGPUs},
		History:       c.ScoringStrategy.Type == LeastWaste,
	}
}

// Prepare implements policy.Policy.
func (p *gpuMemory) Prepare(_ context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	r := p.request(pod)
	filter := filter{policy: p, pod: claims.PodOf(pod.UID), request: r}
	switch {
	case p.ranker == nil && r == nil:
		return nil, nil
	case p.ranker == nil:
		return &cycle{filter}, nil
	}
	ranking := ranking{policy: p, pod: claims.PodOf(pod.UID)}
	ranking.Ranking, _ = p.ranker.Rank(view, snapshot.PodEvent{Pod: pod})
	if r == nil {
		return &ranking, nil
	}
	return &rankingCycle{filter, ranking}, nil
}

// Precompute implements policy.Precomputer.
func (p *gpuMemory) Precompute(view *snapshot.View) {
	if p.ranker != nil {
		p.ranker.Precompute(view)
	}
}

// filter evaluates on which nodes a pod that requests GPUs fits.
type filter struct {
	policy  *gpuMemory
	pod     claims.Pod
	request *request
}

// cycle is the policy prepared for one pod that requests GPUs.
type cycle struct{ filter }

// Signature implements policy.Signature: what the pod requests. Everything else that Filter, and Score of cycle, read is the node's, with its
// ledger and its ConfigMap, except for which pod asks: that matters only where the pod has GPUs already.
func (c *filter) Signature() string { return c.request.signature() }

// Filter implements policy.Filter.
func (c *filter) Filter(n *snapshot.Node) policy.Verdict {
	b := c.policy.usage.Of(n)
	verdict := c.policy.evaluate(c.request, n, b)
	if verdict.Fits() || c.request.refused != nil || !b.holders.Has(c.pod) {
		return verdict
	}
	ledger := n.Ledger(memoryResource)
	if c.policy.usable(ledger, c.pod.UID, n) || n.Has(c.pod.UID) {
		return policy.Verdict{}
	}
	without := usageOf(n, claims.Without(ledger, c.pod.UID), c.policy.hardware.Of(n))
	return c.policy.evaluate(c.request, n, &without)
}

// usable reports whether the pod can use its claims in the ledger, if any: the device plugin runs, and
// the GPUs exist, are healthy, and are large enough.
func (p *gpuMemory) usable(ledger *snapshot.Ledger, uid types.UID, n *snapshot.Node) bool {
	hw, ill := p.hardware.Of(n), unhealthy(n)
	if hw.problem != nil {
		return false
	}
	for unit, amount := range claims.Of(ledger, uid) {
		gpu, err := strconv.Atoi(unit)
		if err != nil || gpu < 0 || gpu >= len(hw.capacities) || amount > hw.capacities[gpu] || ill&(1<<gpu) != 0 {
			return false
		}
	}
	return true
}

// evaluate returns the verdict on whether the pod would get what it requests.
func (p *gpuMemory) evaluate(r *request, n *snapshot.Node, b *usage) policy.Verdict {
	switch {
	case r.refused != nil:
		return policy.Verdict{Reason: r.refused, Unresolvable: true}
	case b.problem != nil:
		return policy.Verdict{Reason: b.problem, Unresolvable: true}
	case len(r.models) > 0 && p.hardware.Of(n).mixed:
		return policy.Verdict{Reason: mixedModels, Unresolvable: true}
	case len(r.models) > 0:
		if _, ok := slices.BinarySearch(r.models, n.Object.Labels[p.config.ModelLabel]); !ok {
			return policy.Verdict{Reason: wrongModel, Unresolvable: true}
		}
	}
	if r.whole() || r.gpus > 1 {
		return r.countGPUs(b)
	}
	switch {
	case b.mostFree >= r.share:
		return policy.Verdict{}
	case b.largest < r.share:
		return policy.Verdict{Reason: tooLarge[p.config.Unit], Unresolvable: true, Have: b.largest, Want: r.share}
	}
	return policy.Verdict{Reason: insufficientMemory[p.config.Unit], Have: b.mostFree, Want: r.share}
}

// countGPUs returns the verdict on a request for more than a share of one GPU.
func (r *request) countGPUs(b *usage) policy.Verdict {
	var fitting, possible int64
	for _, gpu := range b.gpus {
		if r.fits(gpu) {
			fitting++
		}
		if r.possible(gpu) {
			possible++
		}
	}
	if fitting >= r.gpus {
		return policy.Verdict{}
	}
	reason := tooFewGPUs
	if r.whole() {
		reason = tooFewUnused
	}
	return policy.Verdict{Reason: reason, Unresolvable: possible < r.gpus, Have: fitting, Want: r.gpus}
}

// Score implements policy.Score.
func (c *cycle) Score(n *snapshot.Node) int64 {
	b := c.policy.usage.Of(n)
	if b.capacity == 0 {
		return 0
	}
	used := b.used
	if !b.holders.Has(c.pod) {
		used = min(b.capacity, used+min(b.capacity, c.request.expected(b)))
	}
	return c.policy.config.ScoringStrategy.Type.Score(used, b.capacity)
}

// expected returns how much the pod would take, with whole GPUs of average size.
func (r *request) expected(b *usage) int64 {
	if r.whole() {
		return b.capacity / int64(len(b.gpus)) * min(r.gpus, int64(len(b.gpus)))
	}
	return r.memory
}

// Ledgers implements policy.Reserver.
func (p *gpuMemory) Ledgers(pod *corev1.Pod, node *snapshot.Node) ([]snapshot.LedgerKey, error) {
	if p.request(pod) == nil {
		return nil, nil
	}
	return []snapshot.LedgerKey{{Resource: memoryResource, Node: node.Name}}, nil
}

// Reserve implements policy.Reserver.
func (p *gpuMemory) Reserve(ask policy.ReserveRequest) (policy.Claim, policy.Verdict) {
	r := p.request(ask.Pod)
	if r == nil {
		return policy.Claim{}, policy.Verdict{}
	}
	others, ledger := claims.Others(ask)
	b := usageOf(others, ledger, p.hardware.Of(ask.Node))
	if verdict := p.evaluate(r, ask.Node, &b); !verdict.Fits() {
		return policy.Claim{}, verdict
	}
	var claim policy.Claim
	for i, gpu := range b.gpus {
		claim.Units = append(claim.Units, policy.Capacity{Unit: strconv.Itoa(i), Capacity: gpu.capacity})
	}
	var sizes []string
	for _, i := range p.choose(r, &b, p.preferred(ask, others, &b)) {
		size, amount := b.gpus[i].capacity, r.share
		if r.whole() {
			amount = size
		}
		sizes = append(sizes, strconv.FormatInt(size, 10))
		claim.Amounts = append(claim.Amounts, policy.Amount{Unit: strconv.Itoa(i), Amount: amount})
	}
	claim.Annotations = p.annotations(ask, r, claim.Amounts, sizes)
	if !r.whole() {
		claim.After = served(others, ask.Ledger, ask.At, claim.Amounts, r.memory)
	}
	return claim, policy.Verdict{}
}

// ValidateClaim implements policy.ClaimValidator.
func (p *gpuMemory) ValidateClaim(ask policy.ReserveRequest) (after []types.UID, verdict policy.Verdict) {
	if !p.usable(ask.Ledger, ask.Pod.UID, ask.Node) {
		return nil, policy.Verdict{Reason: unusableClaim}
	}
	r := p.request(ask.Pod)
	if r == nil || r.whole() {
		return nil, policy.Verdict{}
	}
	var given []policy.Amount
	for unit, amount := range claims.Of(ask.Ledger, ask.Pod.UID) {
		given = append(given, policy.Amount{Unit: unit, Amount: amount})
	}
	return served(ask.Node, ask.Ledger, ask.At, given, r.memory), policy.Verdict{}
}
