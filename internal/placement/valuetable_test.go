package placement

import (
	"math"
	"testing"
)

// mixOf returns a mix with the given number of pods of each shape.
func mixOf(weights map[Shape]float64) *Mix {
	m := &Mix{weights: weights}
	for _, w := range weights {
		m.seen += w
	}
	return m
}

func inCores(s Shape) float64 { return float64(s.CPU) / cpuCell }

// The test follows a GPU from offer to offer, with the probability of each state, until the GPU is
// almost certainly closed. The amount allocated by then equals the value in the table.
func TestTableAgainstTheProcessItself(t *testing.T) {
	m := mixOf(map[Shape]float64{
		{CPU: 4000, GPUs: 1, Share: 400}: 3,
		{CPU: 2500, GPUs: 1, Share: 295}: 2, // 300 and 3 cores in the steps of the table
		{CPU: 16000, GPUs: 2}:            1, // 8 cores for each
		{CPU: 6000}:                      4, // 3 cores for each of the node's two GPUs
		{CPU: 1, GPUs: 1, Share: 10, Models: NewModels("other")}: 50,
	})
	kind := Kind{"T4", 2, Whole}
	steps := stepsOf(m, kind)
	if steps != 100 {
		t.Fatalf("%d steps", steps)
	}
	table := newTable(offersOf(m, kind, worths(nil, steps), inCores), steps)
	type state struct{ f, x int }
	type offer struct {
		f, x    int
		q, paid float64
	}
	offers := []offer{{40, 4, 3.0 / 60, 400}, {30, 3, 2.0 / 60, 300}, {100, 8, 1.0 / 60, 1000}, {0, 3, 0.3 * 4 / 60, 0}}
	for _, start := range []state{{100, 8}, {100, 7}, {100, 96}, {70, 7}, {70, 12}, {39, 10}, {30, 3}, {29, 50}, {0, 50}, {100, 0}} {
		at, allocated := map[state]float64{start: 1}, 0.0
		for range 4000 {
			next := map[state]float64{}
			for s, p := range at {
				stays := 1 - 0.01
				for _, o := range offers {
					if o.f <= s.f && o.x <= s.x {
						stays -= o.q
						allocated += p * o.q * o.paid
						next[state{s.f - o.f, s.x - o.x}] += p * o.q
					}
				}
				next[s] += p * stays
			}
			at = next
		}
		if got := float64(table.v[start.f][start.x]); math.Abs(got-allocated) > 0.01 {
			t.Errorf("a GPU with %d free and %d cores: the table has %.3f, and %.3f are allocated", start.f*10, start.x, got, allocated)
		}
	}
	if table.v[100][96] < 600 || table.v[0][96] != 0 {
		t.Errorf("a free GPU is worth %.1f, a full one %.1f", table.v[100][96], table.v[0][96])
	}
}

func TestTableBetweenCellsAndBeyond(t *testing.T) {
	table := newTable(offersOf(mixOf(map[Shape]float64{{CPU: 10000, GPUs: 1, Share: 500}: 1}), Kind{"T4", 1, Whole}, worths(nil, 100), inCores), 100)
	nine, ten := float64(table.v[50][9]), float64(table.v[50][10])
	if nine != 0 || ten < 490 {
		t.Fatalf("worth %.1f with 9 cores, %.1f with 10", nine, ten)
	}
	for _, tt := range []struct {
		free float64
		x    float64
		want float64
	}{{.5, 9.25, ten / 4}, {.509, 10, ten}, {.499, 10, 0}, {.5, -3, 0}, {.5, 1e18, ten}, {.5, math.Inf(1), ten}, {-7, 10, 0}, {7, 10, float64(table.v[100][10])}} {
		if got := table.at(tt.free, tt.x); math.Abs(got-tt.want) > 0.01 {
			t.Errorf("%v free, %v cores: %.2f, want %.2f", tt.free, tt.x, got, tt.want)
		}
	}
}

func TestTableOfNothing(t *testing.T) {
	kind := Kind{"T4", 1, Whole}
	for f, row := range newTable(offersOf(nil, kind, worths(nil, 100), inCores), 100).v {
		if row != [cells + 1]float32{} {
			t.Errorf("without demand, a GPU with %d free has a value", f)
		}
	}
	huge := mixOf(map[Shape]float64{{CPU: math.MaxInt64, GPUs: 64, Share: 1}: 1, {CPU: math.MaxInt64}: 1})
	if v := newTable(offersOf(huge, kind, worths(nil, 100), inCores), 100).v[100][96]; v != 0 {
		t.Errorf("a shape that fits nowhere has the value %v", v)
	}
}

// The size of a GPU is often not a multiple of a hundredth: 6 and 10 of 16 fit together exactly.
func TestSteps(t *testing.T) {
	sixTen := mixOf(map[Shape]float64{{GPUs: 1, Share: 6}: 1, {GPUs: 1, Share: 10}: 1, {GPUs: 1, Share: 17}: 1, {GPUs: 1, Share: 5, Models: NewModels("other")}: 1})
	inMiB := mixOf(map[Shape]float64{{GPUs: 1, Share: 6 << 10}: 1, {GPUs: 1, Share: 10 << 10}: 1})
	odd := mixOf(map[Shape]float64{{GPUs: 1, Share: 333}: 1})
	for _, tt := range []struct {
		name  string
		mix   *Mix
		size  int64
		steps int
	}{{"in GiB", sixTen, 16, 8}, {"in MiB", inMiB, 16 << 10, 8}, {"too fine", odd, 1000, 100}, {"whole GPUs only", nil, 16, 1}, {"no GPU", nil, 0, 100}} {
		if got := stepsOf(tt.mix, Kind{"T4", 1, tt.size}); got != tt.steps {
			t.Errorf("%s: %d steps, want %d", tt.name, got, tt.steps)
		}
	}
	table := newTable(offersOf(inMiB, Kind{"T4", 1, 16 << 10}, worths(nil, 8), inCores), 8)
	// ½·10 + ½·6, in sixteenths, except for the probability of closing.
	if got := table.at(10.0/16, 0); got < 490 || got > 500 {
		t.Errorf("10 of 16 are worth %v", got)
	}
}
