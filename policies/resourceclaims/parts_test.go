package resourceclaims_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/mig"
)

// partitionWorld is a cluster whose GPUs are divided into partitions.
type partitionWorld struct{ snapshot.Builder }

func newPartitionWorld(gpus int, nodes ...string) *partitionWorld {
	w := &partitionWorld{}
	w.SetDeviceClass(mig.DeviceClass())
	for _, name := range nodes {
		node, published := mig.Node(name, gpus)
		w.SetNode(node)
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

// A pod has a score where kube-scheduler's allocator finds a partition for it, whatever partitions
// of the GPUs are allocated.
func TestPartitionsOfTheAllocator(t *testing.T) {
	random, w := rand.New(rand.NewPCG(5, 6)), newPartitionWorld(2, "a", "b", "c", "d", "e")
	p, allocator := build(t, "scoringStrategy: {type: LeastWaste}"), firstfit.New()
	var running []*resourcev1.ResourceClaim
	fits, rejects := 0, 0
	for step := range 300 {
		profile := "" // the GPU that is not divided
		if i := random.IntN(len(mig.A100) + 1); i < len(mig.A100) {
			profile = mig.A100[i].Name
		}
		pod, claim := w.come(fmt.Sprint("claim-", step), profile)
		found := scoresWhereAllocated(t, p, allocator, pod, w.View())
		fits, rejects = fits+len(found), rejects+5-len(found)
		if len(found) > 0 {
			claim = claim.DeepCopy()
			claim.Status.Allocation = &found[random.IntN(len(found))]
			w.SetResourceClaim(claim)
			running = append(running, claim)
		}
		if at := random.IntN(12); at < len(running) {
			w.DeletePod(running[at].UID)
			w.DeleteResourceClaim(running[at])
			running = slices.Delete(running, at, at+1)
		}
	}
	if fits < 100 || rejects < 100 {
		t.Errorf("%d fit, and %d do not", fits, rejects)
	}
}

// If pods usually request GPUs that are not divided, a partition goes where a GPU is divided.
func TestPartitionsKeepWhatPodsRequest(t *testing.T) {
	for _, divided := range []string{"a", "b"} {
		w, p := newPartitionWorld(1, "a", "b"), build(t, "scoringStrategy: {type: LeastWaste}")
		allocate(t, &w.Builder, mig.Claim("held", "1g.5gb"), divided)
		for i := range 100 {
			w.come(fmt.Sprint("past-", i), "")
		}
		pod, _ := w.come("new", "1g.5gb")
		view, other := w.View(), map[string]string{"a": "b", "b": "a"}[divided]
		c := policytest.Prepare[policy.Score](t, p, pod, view)
		if on, beside := c.Score(view.Node(other)), c.Score(view.Node(divided)); on >= beside {
			t.Errorf("the score is %d on a GPU that is not divided, and %d on one that is", on, beside)
		}
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
