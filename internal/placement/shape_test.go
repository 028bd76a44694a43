package placement

import "testing"

// node has GPUs of 1000 units, with the given amounts free.
func node(model string, cpu, memory int64, free ...int64) *Node {
	n := &Node{Model: model, CPU: cpu, Memory: memory, CPUCapacity: cpu, MemoryCapacity: memory}
	for _, f := range free {
		n.GPUs = append(n.GPUs, GPU{Free: f, Size: Whole})
	}
	return n
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

// Take takes what the shape requests, which must fit, from the given GPU or the first ones.
func (n *Node) Take(s Shape, gpu int) {
	n.CPU, n.Memory = n.CPU-s.CPU, n.Memory-s.Memory
	if gpu == FirstFree {
		TakeFirst(n.GPUs, s)
	} else {
		n.GPUs[gpu].Take(s)
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
	if a, b := NewModels("b", "a", "b"), NewModels("a", "b"); a != b || !a.Has("a") || a.Has("") {
		t.Errorf("%v, %v", a, b)
	}
	if all := NewModels(); !all.Has("anything") || all != (Models{}) {
		t.Errorf("%v", all)
	}
}
