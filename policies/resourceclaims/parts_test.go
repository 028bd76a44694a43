package resourceclaims_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/mig"
)

// arithmetic is what the test knows of the GPUs of a node, apart from the policy.
type arithmetic struct {
	placement.Partitioned
	names []string // of the devices
}

func newArithmetic(gpus int) *arithmetic {
	a := &arithmetic{}
	names := slices.Sorted(maps.Keys(mig.A100[5].Counters(0)))
	amounts := func(counters map[string]resourcev1.Counter) (all []int64) {
		for _, name := range names {
			counter := counters[name]
			all = append(all, counter.Value.Value())
		}
		return all
	}
	var partitions []placement.Partition
	index := map[string]int{}
	for profile, p := range mig.A100 {
		for _, start := range p.Starts {
			index[fmt.Sprint(p.Name, start)] = len(partitions)
			partitions = append(partitions, placement.Partition{Profile: profile, Uses: amounts(p.Counters(start))})
		}
	}
	a.Layout = placement.NewLayout(amounts(mig.A100[5].Counters(0)), partitions)
	for gpu := range gpus {
		for _, d := range mig.Devices(gpu) {
			profile, start := "7g.40gb", 0 // the GPU that is not divided uses the same
			if p := d.Attributes["profile"].StringValue; p != nil {
				profile = *p
				fmt.Sscanf(d.Name[len(d.Name)-1:], "%d", &start)
			}
			a.Devices = append(a.Devices, placement.Device{GPU: gpu, Partition: index[fmt.Sprint(profile, start)]})
			a.names = append(a.names, d.Name)
		}
	}
	a.GPUs = make([]placement.State, gpus)
	return a
}

// partitionWorld is a cluster whose GPUs are divided into partitions, and what the test knows of
// them.
type partitionWorld struct {
	snapshot.Builder
	known   map[string]*arithmetic // by node
	running []running
}

// running is a pod with a partition.
type running struct {
	pod   *corev1.Pod
	claim *resourcev1.ResourceClaim // allocated
	node  string
}

func newPartitionWorld(nodes, gpus int) *partitionWorld {
	w := &partitionWorld{known: map[string]*arithmetic{}}
	w.SetDeviceClass(mig.DeviceClass())
	for i := range nodes {
		node, published := mig.Node(fmt.Sprint("node-", i), gpus)
		w.SetNode(node)
		w.known[node.Name] = newArithmetic(gpus)
		for _, s := range published {
			w.SetResourceSlice(s)
		}
	}
	return w
}

// come adds a pending pod with a claim for a partition of the profile, or for a whole GPU if it is
// "".
func (w *partitionWorld) come(name, profile string) (*corev1.Pod, *resourcev1.ResourceClaim) {
	claim := mig.Claim(name, profile)
	pod := claiming(claim.Name)
	pod.Name, pod.UID = claim.Name, claim.UID
	w.SetResourceClaim(claim)
	w.SetPod(pod)
	return pod, claim
}

// leave deletes the pod and its claim.
func (w *partitionWorld) leave(pod *corev1.Pod, claim *resourcev1.ResourceClaim) {
	w.DeletePod(pod.UID)
	w.DeleteResourceClaim(claim)
}

// partition returns the partition that the pod has.
func (r *running) partition(n *arithmetic) placement.Device {
	return n.Devices[slices.Index(n.names, r.claim.Status.Allocation.Devices.Results[0].Device)]
}

// start gives the claim of the pod what kube-scheduler's allocator gives it on the node, which must
// be the first partition of the profile.
func (w *partitionWorld) start(t *testing.T, predictor *firstfit.Predictor, r running, profile int) {
	t.Helper()
	view := w.View()
	request, err := predictor.Request(r.pod, view)
	if err != nil {
		t.Fatal(err)
	}
	results, err := predictor.Allocate(request, view.Node(r.node))
	if err != nil {
		t.Fatal(err)
	}
	r.claim = r.claim.DeepCopy()
	r.claim.Status.Allocation = &results[0]
	n := w.known[r.node]
	d, _ := n.First(profile)
	if got := r.partition(n); got != d {
		t.Fatalf("pod %s: kube-scheduler takes %v, and the arithmetic %v", r.pod.Name, got, d)
	}
	n.GPUs[d.GPU], _ = n.Layout.Take(n.GPUs[d.GPU], d.Partition)
	w.SetResourceClaim(r.claim)
	w.running = append(w.running, r)
}

// end deletes a running pod.
func (w *partitionWorld) end(at int) {
	over := w.running[at]
	w.running = slices.Delete(w.running, at, at+1)
	w.leave(over.pod, over.claim)
	n := w.known[over.node]
	clear(n.GPUs)
	for _, r := range w.running {
		if r.node == over.node {
			d := r.partition(n)
			n.GPUs[d.GPU], _ = n.Layout.Take(n.GPUs[d.GPU], d.Partition)
		}
	}
}

// rank fails the test unless the scores of the nodes are the arithmetic's costs. It returns the
// best node, or "" if none has room, and how many different losses there are.
func (w *partitionWorld) rank(t *testing.T, cycle policy.Score, values *placement.PartitionValues, profile int) (best string, losses int) {
	t.Helper()
	lowest, view, lost := placement.Cost(0), w.View(), map[placement.Cost]bool{}
	for name, n := range w.known {
		score := cycle.Score(view.Node(name))
		d, ok := n.First(profile)
		if !ok {
			if score != policy.NoOpinion {
				t.Fatalf("%s has no room, and the score %d", name, score)
			}
			continue
		}
		loss, _ := values.Loss(n.GPUs[d.GPU], d.Partition)
		cost := loss + placement.Order(name)
		if score != -int64(cost) {
			t.Fatalf("the score of %s is %d, and the arithmetic's cost %d", name, score, cost)
		}
		lost[loss] = true
		if best == "" || cost < lowest {
			best, lowest = name, cost
		}
	}
	return best, len(lost)
}

// Nodes with the slices of NVIDIA's driver are ranked as the arithmetic ranks them, which is
// compared with brute force and the optimum in internal/placement; and its first partition is the
// one that kube-scheduler's allocator takes.
func TestPartitionsAreRankedByTheArithmetic(t *testing.T) {
	random, w := rand.New(rand.NewPCG(5, 6)), newPartitionWorld(5, 2)
	p, predictor := build(t, "scoringStrategy: {type: LeastWaste}"), firstfit.New()
	var arrived []int // profiles
	choices, learned := 0, 0
	for step := range 300 {
		profile := random.IntN(len(mig.A100) + 1)
		name := ""
		if profile < len(mig.A100) {
			name = mig.A100[profile].Name
		}
		profile = min(profile, len(mig.A100)-1) // the GPU that is not divided uses the same
		pod, claim := w.come(fmt.Sprint("claim-", step), name)
		arrived = append(arrived, profile)
		cycle := policytest.Prepare[policy.Score](t, p, pod, w.View())
		if _, err := fmt.Sscanf(cycle.(policy.Explainer).Explain(nil)[0], "LeastWaste: workload model of the first %d pods", &learned); err != nil {
			t.Fatal(err)
		}
		came := make([]float64, len(mig.A100))
		for _, profile := range arrived[:learned] {
			came[profile]++
		}
		best, losses := w.rank(t, cycle, placement.NewPartitionValues(w.known["node-0"].Layout, came), profile)
		if losses > 1 {
			choices++
		}
		if best == "" {
			w.leave(pod, claim)
			continue
		}
		w.start(t, predictor, running{pod, claim, best}, profile)
		if len(w.running) > 12 {
			w.end(random.IntN(len(w.running)))
		}
	}
	if choices < 100 || learned < 100 {
		t.Errorf("%d choices between different losses, and %d pods were learned from", choices, learned)
	}
}

// GPUs that have the same counters, and from which other partitions are cut, are told apart: a node
// scores as if it were alone.
func TestGPUsWithOtherPartitionsAreOthers(t *testing.T) {
	scores := func(nodes ...string) map[string]int64 {
		var b snapshot.Builder
		b.SetDeviceClass(mig.DeviceClass())
		for _, name := range nodes {
			node, published := mig.Node(name, 1)
			b.SetNode(node)
			for _, s := range published {
				if name == "few" {
					s.Spec.Devices = slices.DeleteFunc(s.Spec.Devices, func(d resourcev1.Device) bool {
						profile := d.Attributes["profile"].StringValue
						return profile != nil && *profile == mig.A100[0].Name
					})
				}
				b.SetResourceSlice(s)
			}
		}
		claim := mig.Claim("claim", mig.A100[1].Name)
		pod := claiming(claim.Name)
		b.SetResourceClaim(claim)
		view, found := b.View(), map[string]int64{}
		p := build(t, "scoringStrategy: {type: LeastWaste}")
		for range 2 { // what the first cycle has learned of the nodes counts in the second one
			cycle := policytest.Prepare[policy.Score](t, p, pod, view)
			for _, name := range nodes {
				found[name] = cycle.Score(view.Node(name))
			}
		}
		return found
	}
	few, all := scores("few")["few"], scores("all")["all"]
	if few == policy.NoOpinion || all == policy.NoOpinion || few == all {
		t.Fatalf("the scores are %d with few partitions, and %d with all", few, all)
	}
	for _, nodes := range [][]string{{"few", "all"}, {"all", "few"}} {
		if found := scores(nodes...); found["few"] != few || found["all"] != all {
			t.Errorf("%v: the scores are %v, and alone %d and %d", nodes, found, few, all)
		}
	}
}
