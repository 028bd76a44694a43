package strategies

import (
	"math"
	"testing"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
)

func node(model string, cpu, memory int64, free ...int64) *placement.Node {
	n := &placement.Node{Model: model, CPU: cpu, Memory: memory, CPUCapacity: cpu, MemoryCapacity: memory}
	for _, f := range free {
		n.GPUs = append(n.GPUs, placement.GPU{Free: f, Size: placement.Whole})
	}
	return n
}

// mixOf returns a mix with the given number of pods of each shape.
func mixOf(pods map[placement.Shape]int) *placement.Mix {
	learner := placement.NewLearner(0)
	for s, n := range pods {
		for range n {
			learner.Arrive(s)
		}
	}
	return learner.Mix()
}

func TestFragmentationByHand(t *testing.T) {
	// A quarter each: without GPUs, 400 of one GPU with 2 cores, two whole GPUs, 100 of a P100.
	m := mixOf(map[placement.Shape]int{
		{CPU: 1000}:                      1,
		{CPU: 2000, GPUs: 1, Share: 400}: 1,
		{CPU: 4000, GPUs: 2}:             1,
		{GPUs: 1, Share: 100, Models: placement.NewModels("P100")}: 1,
	})
	f := NewFragmentation(m, []placement.Kind{{Model: "T4", GPUs: 4, Size: placement.Whole}})
	for _, tt := range []struct {
		name string
		node *placement.Node
		want float64
	}{
		{"all free", node("T4", 8000, 0, 1000, 1000), (2000 + 0 + 0 + 2000) / 4.0},
		{"one in use", node("T4", 8000, 0, 1000, 300), (1300 + 300 + 1300 + 1300) / 4.0},
		{"too little CPU for two GPUs", node("T4", 3999, 0, 1000, 1000), (2000 + 0 + 2000 + 2000) / 4.0},
		{"too little CPU for any", node("T4", 1999, 0, 1000, 500), 1500},
		{"shares too small", node("T4", 8000, 0, 399, 399), 798},
		{"whole GPUs beside parts", node("T4", 8000, 0, 1000, 1000, 500, 200), (2700 + 200 + 700 + 2700) / 4.0},
		{"a P100", node("P100", 8000, 0, 1000, 50), (1050 + 50 + 1050 + 50) / 4.0},
		{"nothing free", node("T4", 8000, 0, 0, 0), 0},
		{"no GPUs", node("", 8000, 0), 0},
	} {
		if got := f.Of(tt.node); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestFragmentationRate(t *testing.T) {
	f := NewFragmentation(mixOf(map[placement.Shape]int{{GPUs: 1, Share: 400}: 1}), []placement.Kind{{Model: "T4", GPUs: 2, Size: placement.Whole}})
	s := placement.Shape{GPUs: 1, Share: 300}
	// On the second GPU, the pod leaves no unusable part: F stays 0. On the first F grows by 300.
	n := node("T4", 0, 0, 600, 300)
	offers := f.Rate(n, s) // before: F = 300; after on GPU 1: 0; after on GPU 0: 600
	want := 100 - placement.Cost(math.Floor(100/(1+math.Exp(-0.3))))
	if got := offers.All(); len(got) != 1 || got[0].GPU != 1 || got[0].Cost != want {
		t.Errorf("offers %+v, want GPU 1 for %d", got, want)
	}
	if offers := f.Rate(n, placement.Shape{GPUs: 1, Share: 700}); len(offers.All()) != 0 {
		t.Errorf("there is an offer for a GPU that does not exist: %+v", offers)
	}
	if n.GPUs[0].Free != 600 || n.GPUs[1].Free != 300 {
		t.Errorf("the node has changed: %v", n)
	}
}

func TestTypicalPods(t *testing.T) {
	m := mixOf(map[placement.Shape]int{{CPU: 1}: 60, {CPU: 2}: 34, {CPU: 3}: 4, {CPU: 4}: 2})
	f := NewFragmentation(m, nil)
	if len(f.typical) != 3 { // 60, 94, 98: the third crosses 95 %
		t.Fatalf("%d shapes are typical", len(f.typical))
	}
	if got := f.typical[0].weight; math.Abs(got-60.0/98) > 1e-9 {
		t.Errorf("the weight of the first shape is %v", got)
	}
}

func TestBestFit(t *testing.T) {
	b := NewBestFit(100000, 4)
	n := node("T4", 50000, 0, 1000, 400, 700, 0)
	for _, tt := range []struct {
		name  string
		shape placement.Shape
		gpu   int8
		cost  placement.Cost
	}{
		{"a share", placement.Shape{CPU: 10000, GPUs: 1, Share: 300}, 1, 43}, // 40 % and 45 % left: 42.5
		{"a larger share", placement.Shape{CPU: 50000, GPUs: 1, Share: 500}, 2, 20},
		{"a whole GPU", placement.Shape{CPU: 50000, GPUs: 1}, placement.FirstFree, 14}, // 27.5 %
		{"no GPU", placement.Shape{CPU: 50000}, placement.FirstFree, 27},               // 52.5 %
	} {
		offers := b.Rate(n, tt.shape)
		if got := offers.All(); len(got) != 1 || got[0].GPU != tt.gpu || got[0].Cost != tt.cost {
			t.Errorf("%s: %+v, want GPU %d for %d", tt.name, got, tt.gpu, tt.cost)
		}
	}
}

// Best fit through GPUMemory. The largest node of the scenarios has 32 cores.
func TestScenarios(t *testing.T) {
	build := func(c gpumemory.Config) (policy.Policy, error) { return gpumemory.NewWith(c, BestFitOf(32000)) }
	policytest.RunScenarios(t, policy.TypeOf("GPUMemory", gpumemory.Defaults, build), "testdata/*.txtar")
}
