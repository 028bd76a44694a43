package placement

import (
	"math"
	"testing"
)

func TestFragmentationByHand(t *testing.T) {
	// A quarter each: without GPUs, 400 of one GPU with 2 cores, two whole GPUs, 100 of a P100.
	m := mixOf(map[Shape]float64{
		{CPU: 1000}:                      1,
		{CPU: 2000, GPUs: 1, Share: 400}: 1,
		{CPU: 4000, GPUs: 2}:             1,
		{GPUs: 1, Share: 100, Models: NewModels("P100")}: 1,
	})
	f := NewFragmentation(m, []Kind{{"T4", 4, Whole}})
	for _, tt := range []struct {
		name string
		node *Node
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
	f := NewFragmentation(mixOf(map[Shape]float64{{GPUs: 1, Share: 400}: 1}), []Kind{{"T4", 2, Whole}})
	s := Shape{GPUs: 1, Share: 300}
	// On the second GPU nothing that can be used is left of nothing: F stays 0. On the first F grows by 300.
	n := node("T4", 0, 0, 600, 300)
	offers := f.Rate(n, s) // before: F = 300; after on GPU 1: 0; after on GPU 0: 600
	want := 100 - Cost(math.Floor(100/(1+math.Exp(-0.3))))
	if got := offers.All(); len(got) != 1 || got[0].GPU != 1 || got[0].Cost != want {
		t.Errorf("offers %+v, want GPU 1 for %d", got, want)
	}
	if offers := f.Rate(n, Shape{GPUs: 1, Share: 700}); len(offers.All()) != 0 {
		t.Errorf("offers what there is not: %+v", offers)
	}
	if n.GPUs[0].Free != 600 || n.GPUs[1].Free != 300 {
		t.Errorf("the node is changed: %v", n)
	}
}

func TestTypicalPods(t *testing.T) {
	m := mixOf(map[Shape]float64{{CPU: 1}: 60, {CPU: 2}: 34, {CPU: 3}: 4, {CPU: 4}: 2})
	f := NewFragmentation(m, nil)
	if len(f.typical) != 3 { // 60, 94, 98: the third crosses 95 %
		t.Fatalf("%d are typical", len(f.typical))
	}
	if got := f.typical[0].weight; math.Abs(got-60.0/98) > 1e-9 {
		t.Errorf("the first weighs %v", got)
	}
}

func TestBestFit(t *testing.T) {
	b := NewBestFit(100000, 4)
	n := node("T4", 50000, 0, 1000, 400, 700, 0)
	for _, tt := range []struct {
		name  string
		shape Shape
		gpu   int8
		cost  Cost
	}{
		{"a share", Shape{CPU: 10000, GPUs: 1, Share: 300}, 1, 43}, // 40 % and 45 % left: 42.5
		{"a larger share", Shape{CPU: 50000, GPUs: 1, Share: 500}, 2, 20},
		{"a whole GPU", Shape{CPU: 50000, GPUs: 1}, FirstFree, 14}, // 27.5 %
		{"no GPU", Shape{CPU: 50000}, FirstFree, 27},               // 52.5 %
	} {
		offers := b.Rate(n, tt.shape)
		if got := offers.All(); len(got) != 1 || got[0].GPU != tt.gpu || got[0].Cost != tt.cost {
			t.Errorf("%s: %+v, want GPU %d for %d", tt.name, got, tt.gpu, tt.cost)
		}
	}
}
