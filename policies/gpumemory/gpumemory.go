// Package gpumemory is the policy GPUMemory: shares of the memory of single GPUs, in
// the protocol of gpushare. README.md in this folder is its documentation.
//
// The policy has two halves. The first counts the GPUs of a node (node.go, gpushare.go) and says
// whether a pod fits there and which GPUs the pod gets (this file). The second,
// ranking.go, ranks nodes and GPUs by what the pods that usually arrive can still use, with the
// arithmetic of internal/placement/strategy: it exists only with the scoring strategy LeastWaste, and
// also for pods without GPUs. gpus.go and inspect.go show the state of the GPUs to people and tools.
package gpumemory

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/internal/placement/strategy"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/snapshot"
)

type gpuMemory struct {
	config    Config
	agent     agent
	hardware  *snapshot.ObjectFact[hardware]
	podStates *snapshot.PodFact[podState]
	usage     *snapshot.Fact[usage]
	units     *snapshot.Fact[[]policy.Unit]
	ranker    *strategy.Ranker // nil: each node is scored alone
}

// newGPUMemory returns the policy. If it compares nodes, it does so by the strategy.
func newGPUMemory(config Config, leastWaste strategy.Strategy) *gpuMemory {
	config.Unit = cmp.Or(config.Unit, GiB)
	if config.NodeAgent != GPUShare {
		config.Unit = MiB
	}
	p := &gpuMemory{config: config, agent: config.agent()}
	p.hardware = snapshot.NewObjectFact(func(n *corev1.Node) hardware { return config.orSimulated(n, p.agent.hardware(n)) })
	p.podStates = snapshot.NewPodFact(p.agent.state)
	p.usage = snapshot.NewFact(func(n *snapshot.Node) usage { return p.usageOf(n, p.ledger(n), false) })
	p.units = snapshot.NewFact(func(n *snapshot.Node) []policy.Unit { return p.usage.Of(n).units() })
	if config.ScoringStrategy.Type == LeastWaste {
		shapes := &shapes{p}
		p.ranker = strategy.New(strategy.Options{
			Strategy: leastWaste,
			Shapes:   func(strategy.Shapes, *snapshot.View, []*snapshot.Node) strategy.Shapes { return shapes },
			Node:     func(n *snapshot.Node) placement.Node { return p.freeOn(n, p.usage.Of(n)) },
		})
	}
	return p
}

func (p *gpuMemory) Inputs() policy.Inputs { return p.config.Inputs() }

// ledger returns the ledger of the node; nil if there is none.
func (p *gpuMemory) ledger(n *snapshot.Node) *snapshot.Ledger { return n.Ledger(p.agent.resource()) }

func (c *Config) Inputs() policy.Inputs {
	resources, guard := c.agent().resources(), ""
	if len(resources) == 0 {
		guard = "outboard-gpu-devices"
	}
	return policy.Inputs{
		Resources:        resources,
		AllocationFields: []string{"nodeAgent", "unit", "sizesFrom", "simulatedGPUs"},
		AnyPod:           guard != "",
		AdmissionPolicy:  guard,
		ConfigMaps:       []snapshot.ConfigMapSource{unhealthyGPUs},
		History:          c.ScoringStrategy.Type == LeastWaste,
	}
}

func (p *gpuMemory) Prepare(_ context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	r, err := p.request(pod)
	c := cycle{policy: p, pod: pod.UID, request: r}
	switch {
	case err != nil:
		return nil, err
	case p.ranker == nil && r == nil:
		return nil, nil
	case p.ranker == nil:
		return &c, nil
	}
	ranking := ranking{policy: p, pod: pod.UID}
	ranking.Ranking, _ = p.ranker.Rank(view, snapshot.PodEvent{Pod: pod})
	if r == nil {
		return &ranking, nil
	}
	return &rankingCycle{c, ranking}, nil
}

func (p *gpuMemory) Precompute(view *snapshot.View) {
	if p.ranker != nil {
		p.ranker.Precompute(view)
	}
}

// cycle is the policy prepared for one pod that requests GPUs.
type cycle struct {
	policy  *gpuMemory
	pod     types.UID
	request *request
}

// Signature implements policy.Signature: what the pod requests. Everything else that Filter and
// Score read is the node's, with its ledger and its ConfigMap, except for which pod asks: that
// matters only where the pod has GPUs already.
func (c *cycle) Signature() string { return c.request.signature() }

func (c *cycle) Filter(n *snapshot.Node) policy.Verdict {
	u := c.policy.usage.Of(n)
	verdict := c.policy.evaluate(c.request, n, u)
	if verdict.Fits() || c.request.refused != nil || !u.holders.Has(c.pod) {
		return verdict
	}
	ledger := c.policy.ledger(n)
	if c.policy.usable(ledger, c.pod, n) || n.Has(c.pod) {
		return policy.Verdict{}
	}
	without := c.policy.usageOf(n, allocations.Without(ledger, c.pod), false)
	return c.policy.evaluate(c.request, n, &without)
}

// usable reports whether the pod can use its allocations in the ledger, if any: the device plugin
// runs, and the GPUs exist, are healthy, and are large enough.
func (p *gpuMemory) usable(ledger *snapshot.Ledger, uid types.UID, n *snapshot.Node) bool {
	hw, ill := p.hardware.Of(n), unhealthy(n)
	return hw.problem == nil && hw.before(ledger) == 0 && allocations.Serves(ledger, uid, func(unit string) int64 {
		gpu, err := strconv.Atoi(unit)
		if err != nil || gpu < 0 || ill&(1<<gpu) != 0 {
			return 0
		}
		return hw.capacity(gpu)
	})
}

// evaluate returns the verdict on whether the pod would get what it requests.
func (p *gpuMemory) evaluate(r *request, n *snapshot.Node, u *usage) policy.Verdict {
	switch {
	case r.refused != nil:
		return policy.Verdict{Reason: r.refused, Unresolvable: true}
	case u.problem != nil:
		return policy.Verdict{Reason: u.problem, Unresolvable: p.hardware.Of(n).problem != nil}
	case len(r.models) > 0 && p.hardware.Of(n).mixed:
		return policy.Verdict{Reason: mixedModels, Unresolvable: true}
	case len(r.models) > 0:
		if _, ok := slices.BinarySearch(r.models, n.Object.Labels[p.config.ModelLabel]); !ok {
			return policy.Verdict{Reason: wrongModel, Unresolvable: true}
		}
	}
	if r.whole() || r.gpus > 1 {
		return r.countGPUs(u)
	}
	switch {
	case u.mostFree >= r.share:
		return policy.Verdict{}
	case u.largest < r.share:
		return policy.Verdict{Reason: tooLarge[p.config.Unit], Unresolvable: true, Have: u.largest, Want: r.share}
	}
	return policy.Verdict{Reason: insufficientMemory[p.config.Unit], Have: u.mostFree, Want: r.share}
}

// countGPUs returns the verdict on a request for more than a share of one GPU.
func (r *request) countGPUs(u *usage) policy.Verdict {
	var fitting, possible int64
	for i := range u.gpus {
		if r.fits(&u.gpus[i]) {
			fitting++
		}
		if r.possible(&u.gpus[i]) {
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

func (c *cycle) Score(n *snapshot.Node) int64 {
	u := c.policy.usage.Of(n)
	if u.capacity == 0 {
		return 0
	}
	used := u.used
	if !u.holders.Has(c.pod) {
		used = min(u.capacity, used+min(u.capacity, c.request.expected(u)))
	}
	return c.policy.config.ScoringStrategy.Type.Score(used, u.capacity)
}

// expected returns how much the pod would take, with whole GPUs of average size.
func (r *request) expected(u *usage) int64 {
	if r.whole() {
		return u.capacity / int64(len(u.gpus)) * min(r.gpus, int64(len(u.gpus)))
	}
	return r.memory
}

func (p *gpuMemory) Ledgers(pod *corev1.Pod, node *snapshot.Node) ([]snapshot.LedgerKey, error) {
	if r, err := p.request(pod); err != nil || r == nil {
		return nil, err
	}
	return []snapshot.LedgerKey{{Resource: p.agent.resource(), Node: node.Name}}, nil
}

func (p *gpuMemory) Reserve(ask policy.ReserveRequest) (policy.Allocation, policy.Verdict) {
	r, err := p.request(ask.Pod)
	if err != nil || r == nil { // Ledgers names none
		return policy.Allocation{}, policy.Verdict{}
	}
	others, ledger := allocations.Others(ask)
	u := p.usageOf(others, ledger, false)
	if verdict := p.evaluate(r, ask.Node, &u); !verdict.Fits() {
		return policy.Allocation{}, verdict
	}
	var allocation policy.Allocation
	for i := range u.gpus {
		allocation.Units = append(allocation.Units, policy.Capacity{Unit: strconv.Itoa(i), Capacity: u.gpus[i].Capacity})
	}
	var sizes []int64
	for _, i := range p.choose(r, &u, p.preferred(ask, others, &u)) {
		size, amount := u.gpus[i].Capacity, r.share
		if r.whole() {
			amount = size
		}
		sizes = append(sizes, size)
		allocation.Amounts = append(allocation.Amounts, policy.Amount{Unit: strconv.Itoa(i), Amount: amount})
	}
	allocation.Annotations = p.agent.annotations(ask, r, allocation.Amounts, sizes)
	if !r.whole() && p.agent.ordered() {
		allocation.After = served(others, ask.Ledger, ask.At, allocation.Amounts, r.memory)
	}
	return allocation, policy.Verdict{}
}

func (p *gpuMemory) ValidateAllocation(ask policy.ReserveRequest) (after []types.UID, verdict policy.Verdict) {
	if !p.usable(ask.Ledger, ask.Pod.UID, ask.Node) {
		return nil, policy.Verdict{Reason: unusableAllocation}
	}
	r, _ := p.request(ask.Pod)
	if r == nil || r.whole() || !p.agent.ordered() {
		return nil, policy.Verdict{}
	}
	var given []policy.Amount
	for unit, amount := range allocations.Of(ask.Ledger, ask.Pod.UID) {
		given = append(given, policy.Amount{Unit: unit, Amount: amount})
	}
	return served(ask.Node, ask.Ledger, ask.At, given, r.memory), policy.Verdict{}
}

// choose returns the indices of the GPUs that the pod gets, in order; nil if too few of them fit.
//
// An agent for which the order of pods matters does not know for which of several pending pods with
// the same request the kubelet calls, and takes the one that was bound first. So that this does not
// matter, a pod gets the GPU of another pod with the same request that has not been served yet, if
// it fits there, whatever the order. Otherwise it gets the preferred GPU, if that is set (0 or more)
// and fits.
func (p *gpuMemory) choose(r *request, u *usage, preferred int) []int {
	var fitting, together []int
	for i := range u.gpus {
		if r.fits(&u.gpus[i]) {
			fitting = append(fitting, i)
			if r.gpus == 1 && !r.whole() && p.agent.ordered() && u.unserved[r.memory]&(1<<i) != 0 {
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
