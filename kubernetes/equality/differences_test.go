package equality

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// eachCase draws clusters with configurations, and a pod for each, and calls the extender for it.
func eachCase(t *testing.T, check func(d draw, s *sides, pod *corev1.Pod)) {
	w := newWire(t)
	fewer(t, 10)
	rapid.Check(t, func(t *rapid.T) {
		d, s := begin(t), &sides{wire: w, counts: &counts{}}
		s.begin(d)
		pod := d.pod("pod")
		s.cluster.publish()
		if interested(d, s.profile, pod) {
			check(d, s, pod)
		}
	})
}

// TestSampling: kube-scheduler's calls contain the nodes that it has found, which may be any nodes. The verdict on a node does
// not depend on the others, so a plugin, which gets one node at a time, can return the same.
func TestSampling(t *testing.T) {
	asked := 0
	eachCase(t, func(d draw, s *sides, pod *corev1.Pod) {
		s.profile.Shortlist = nil // a shortlist omits reasons, depending on how many nodes fit
		s.memory.engine = engineOf(d, s.profile)
		all := s.memory.ask(s.cluster.View(), trimmed(pod), s.nodes)
		for _, how := range []string{"by names", "by nodes"} {
			s.wire.serve(s.profile, engineOf(d, s.profile), s.cluster, &s.allocations)
			nodes := d.subset(s.nodes)
			some := s.wire.ask(how, pod, nodes)
			if some.Error != all.Error && len(nodes) > 0 {
				d.Fatalf("%s, filter answers %q, want %q", how, some.Error, all.Error)
			}
			for name, got := range some.Verdicts {
				if asked++; got != all.Verdicts[name] {
					d.Fatalf("%s, with %d of %d nodes, the extender returns for %s %s, want %s", how, len(some.Verdicts), len(s.nodes), name, describe(got), describe(all.Verdicts[name]))
				}
			}
		}
	})
	if asked == 0 {
		t.Error("no call had a node")
	}
}

// TestUnknownNodes: a node that Outboard has not observed yet is rejected if the call has only its name. If the call has the
// node, the verdict depends on it alone: without pods, ledgers and ConfigMaps.
func TestUnknownNodes(t *testing.T) {
	known := 0
	eachCase(t, func(d draw, s *sides, pod *corev1.Pod) {
		s.profile.Shortlist = nil
		s.wire.serve(s.profile, engineOf(d, s.profile), s.cluster, &s.allocations)
		stranger := d.node(99)
		nodes := append(slices.Clip(s.nodes), stranger)
		got := s.wire.ask("by names", pod, nodes)
		if want := (verdict{Reason: engine.NodeUnknown.Text}); got.Error == "" && got.Verdicts[stranger.Name] != want {
			d.Fatalf("by names, the extender says of an unknown node %s", describe(got.Verdicts[stranger.Name]))
		}
		got = s.wire.ask("by nodes", pod, nodes)
		trim := stranger.DeepCopy()
		snapshot.TrimNode(trim)
		var result engine.Result
		req := engine.Request{Pod: trimmed(pod), View: s.cluster.View(), Nodes: []*snapshot.Node{snapshot.NewNode(trim)}}
		if err := engineOf(d, s.profile).Filter(background, req, &result); err != nil {
			if got.Error != oneLine(err) {
				d.Fatalf("by nodes, filter returns %q, want %q", got.Error, oneLine(err))
			}
			return
		}
		want := verdict{}
		for _, r := range result.Rejected {
			want = verdict{r.Reason.Text, r.Unresolvable}
		}
		if known++; got.Verdicts[stranger.Name] != want {
			d.Fatalf("by nodes, the extender says of an unknown node %s, want %s", describe(got.Verdicts[stranger.Name]), describe(want))
		}
	})
	if known == 0 {
		t.Error("no unknown node was evaluated")
	}
}

// TestLevelsOfTheWire: two nodes get the same score if neither is the best, and their totals differ by less than a tenth of the
// range.
func TestLevelsOfTheWire(t *testing.T) {
	totals := map[string]int64{"a": 90, "b": 89, "c": 81, "d": 80, "e": 12}
	sent := map[string]int64{"a": 8, "b": 7, "c": 7, "d": 7, "e": 0} // 9, 8, 8, 8 and 1, minus the lowest
	if difference := levels(totals, sent, 100); difference != "" {
		t.Errorf("%v: %s", sent, difference)
	}
	for name, change := range map[string]func(map[string]int64){
		"the best is not alone":    func(s map[string]int64) { s["b"]++ },
		"another is the best":      func(s map[string]int64) { s["a"], s["b"] = s["b"], s["a"] },
		"worse nodes are better":   func(s map[string]int64) { s["c"], s["e"] = s["e"], s["c"] },
		"the least is sent":        func(s map[string]int64) { s["a"]++; s["b"]++; s["c"]++; s["d"]++; s["e"]++ },
		"a node without its level": func(s map[string]int64) { s["d"]-- },
	} {
		scores := maps.Clone(sent)
		change(scores)
		if levels(totals, scores, 100) == "" {
			t.Errorf("%s: no difference between %s and the levels of %s", name, fmt.Sprint(scores), fmt.Sprint(totals))
		}
	}
}
