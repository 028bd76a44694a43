package placement

import (
	"slices"
	"testing"
)

// node has GPUs of 1000 units, with the given amounts free.
func node(model string, cpu, memory int64, free ...int64) *Node {
	n := &Node{Model: model, CPU: cpu, Memory: memory, CPUCapacity: cpu, MemoryCapacity: memory}
	for _, f := range free {
		n.GPUs = append(n.GPUs, GPU{Free: f, Size: Whole})
	}
	return n
}

func frees(n *Node) []int64 {
	var free []int64
	for _, g := range n.GPUs {
		free = append(free, g.Free)
	}
	return free
}

func TestFits(t *testing.T) {
	n := node("T4", 8000, 1024, 1000, 400, 0)
	for _, tt := range []struct {
		name  string
		shape Shape
		fits  bool
	}{
		{"nothing asked", Shape{}, true},
		{"a share", Shape{CPU: 8000, Memory: 1024, GPUs: 1, Share: 400}, true},
		{"two shares on two GPUs", Shape{GPUs: 2, Share: 400}, true},
		{"three shares", Shape{GPUs: 3, Share: 100}, false},
		{"two whole GPUs", Shape{GPUs: 2}, false},
		{"more GPUs than there are", Shape{GPUs: 4, Share: 1}, false},
		{"CPU", Shape{CPU: 8001}, false},
		{"memory", Shape{Memory: 1025}, false},
		{"the model", Shape{GPUs: 1, Share: 1, Models: NewModels("A10", "T4")}, true},
		{"another model", Shape{GPUs: 1, Share: 1, Models: NewModels("A10")}, false},
		{"no GPU of another model", Shape{Models: NewModels("A10")}, true},
	} {
		if got := n.Fits(tt.shape); got != tt.fits {
			t.Errorf("%s: fits is %v", tt.name, got)
		}
	}
}

func TestTake(t *testing.T) {
	n := node("T4", 8000, 1024, 0, 1000, 400, 1000)
	s := Shape{CPU: 1000, Memory: 24, GPUs: 2}
	if got := n.Take(s, FirstFree); !slices.Equal(got, []int{1, 3}) || !slices.Equal(frees(n), []int64{0, 0, 400, 0}) || n.CPU != 7000 || n.Memory != 1000 {
		t.Errorf("took %v, left %+v", got, n)
	}
	share := Shape{GPUs: 1, Share: 300}
	if got := n.Take(share, 2); !slices.Equal(got, []int{2}) || n.GPUs[2].Free != 100 {
		t.Errorf("took %v, left %+v", got, n)
	}
}

func TestShapesOnKinds(t *testing.T) {
	for _, tt := range []struct {
		shape Shape
		size  int64
		want  float64
	}{{Shape{GPUs: 1, Share: 8}, 16, 500}, {Shape{GPUs: 1, Share: 8}, 32, 250}, {Shape{GPUs: 1, Share: 8}, 8, Whole}, {Shape{GPUs: 1, Share: 8}, 4, 2 * Whole}, {Shape{GPUs: 2}, 16, Whole}, {Shape{CPU: 5}, 16, 0}} {
		if got := tt.shape.On(Kind{"T4", 2, tt.size}); got != tt.want {
			t.Errorf("%+v on GPUs of %d: %v", tt.shape, tt.size, got)
		}
	}
}

func TestModels(t *testing.T) {
	if a, b := NewModels("b", "a", "b"), NewModels("a", "b"); a != b || !a.Has("a") || a.Has("") || a.Any() {
		t.Errorf("%v, %v", a, b)
	}
	if all := NewModels(); !all.Any() || !all.Has("anything") || all != (Models{}) {
		t.Errorf("%v", all)
	}
}
