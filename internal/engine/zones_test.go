package engine_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Of equally good nodes, Best chooses the same number from each zone, as far as a zone has as many;
// and no worse ones for that.
func TestBestIsSpreadOverZones(t *testing.T) {
	for _, signed := range []bool{true, false} {
		rapid.Check(t, func(t *rapid.T) {
			levels := int64(rapid.IntRange(1, 3).Draw(t, "levels"))
			p := &fake{score: func(n *snapshot.Node) int64 { return number(n, "level") % levels * 10 }}
			if signed {
				p.signature = "s"
			}
			e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "p", Weight: 1, Policy: p}}})
			if err != nil {
				t.Fatal(err)
			}
			var b snapshot.Builder
			nodes, zoneOf := rapid.IntRange(1, 40).Draw(t, "nodes"), func() string { return rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "zone") }
			set := func(i int) {
				labels := map[string]string{"level": fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "level"))}
				if zone := zoneOf(); zone != "" {
					labels[corev1.LabelTopologyZone] = zone
				}
				b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%03d", i), Labels: labels}})
			}
			for i := range nodes {
				set(i)
			}
			for step := range 4 {
				view := b.View()
				c := engine.Choice{N: rapid.IntRange(1, 9).Draw(t, "n"), Usable: func(int32) (bool, bool) { return true, false }}
				all := slices.Collect(view.All())
				for _, n := range all {
					c.Rows = append(c.Rows, int32(n.Row()))
				}
				c.First = rapid.IntRange(0, len(all)-1).Draw(t, "first")
				a, err := e.Begin(t.Context(), podOf(fmt.Sprint(step), "1"), view)
				if err != nil {
					t.Fatal(err)
				}
				a.TakeNodeCache()
				var result engine.Result
				if err := a.Best(t.Context(), c, &result); err != nil {
					t.Fatal(err)
				}
				a.ReturnNodeCache()
				if len(result.Kept) != min(c.N, len(all)) {
					t.Fatalf("chose %v of %d", result.Kept, len(all))
				}
				chosen, left := map[string]int{}, map[string]int{}
				worst := int64(policy.MaxScore)
				for _, i := range result.Kept {
					worst = min(worst, p.score(all[i]))
					chosen[all[i].Object.Labels[corev1.LabelTopologyZone]]++
				}
				last := map[string]int{} // of the worst level
				for i, n := range all {
					zone, score, has := n.Object.Labels[corev1.LabelTopologyZone], p.score(n), slices.Contains(result.Kept, int32(i))
					switch {
					case score > worst && !has:
						t.Fatalf("%s is better than what is chosen: %v", n.Name, result.Kept)
					case score == worst && !has:
						left[zone]++
					case score == worst:
						last[zone]++
					}
				}
				for zone := range left { // it could have more
					for other := range last {
						if chosen[other] > chosen[zone]+1 {
							t.Fatalf("%d of zone %q and only %d of zone %q are chosen", chosen[other], other, chosen[zone], zone)
						}
					}
				}
				set(rapid.IntRange(0, nodes-1).Draw(t, "changed"))
			}
		})
	}
}
