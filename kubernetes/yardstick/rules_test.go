package yardstick

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policies/rules"
	"outboard.dev/outboard/policy"
)

// filterRules are rules that are equivalent to a filter of kube-scheduler, all together.
func filterRules() map[string][]string {
	const affinity = `!has(pod.spec.affinity) || pod.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms`
	const each = affinity + `[0].?matchExpressions.orValue([]).all(r, `
	var tolerates []string // each of the taints
	for _, key := range []string{"dedicated", "broken", corev1.TaintNodeUnschedulable} {
		for _, value := range []string{"", "gpu", "3"} {
			for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
				tolerates = append(tolerates, fmt.Sprintf(`
					!node.spec.?taints.orValue([]).exists(t, t.key == %[1]q && t.effect == %[2]q && t.?value.orValue("") == %[3]q) ||
					pod.spec.?tolerations.orValue([]).exists(t, t.?key.orValue(%[1]q) == %[1]q && t.?effect.orValue(%[2]q) == %[2]q &&
						(t.?operator.orValue("") == "Exists" || t.?value.orValue("") == %[3]q))`, key, effect, value))
			}
		}
	}
	return map[string][]string{
		names.NodeResourcesFit: {
			`usage.pods < node.status.allocatable[?"pods"].orValue(quantity("0")).asInteger()`,
			`podRequests.all(name, amount, !amount.isGreaterThan(quantity("0")) || name in usage.free && !usage.free[name].isLessThan(amount))`,
		},
		names.TaintToleration: tolerates,
		names.NodeAffinity: {
			`!has(pod.spec.nodeSelector) || pod.spec.nodeSelector.all(key, value, node.metadata.labels[?key].orValue("") == value)`,
			affinity + `.size() > 0`,
			affinity + `.all(term, has(term.matchExpressions) || has(term.matchFields))`,
			affinity + `[0].?matchFields.orValue([]).all(r, (node.metadata.name in r.values) == (r.operator == "In"))`,
			each + `r.operator != "Exists" || r.key in node.metadata.labels)`,
			each + `r.operator != "DoesNotExist" || !(r.key in node.metadata.labels))`,
			each + `r.operator != "In" || r.key in node.metadata.labels && node.metadata.labels[r.key] in r.values)`,
			each + `r.operator != "NotIn" || !(r.key in node.metadata.labels && node.metadata.labels[r.key] in r.values))`,
			each + `r.operator != "Gt" || int(node.metadata.labels[r.key]) > int(r.values[0]))`, // fails like a label that is not a number
			each + `r.operator != "Lt" || int(node.metadata.labels[r.key]) < int(r.values[0]))`,
		},
	}
}

// TestRules compares filters of kube-scheduler with equivalent rules.
func TestRules(t *testing.T) {
	for plugin, expressions := range filterRules() {
		t.Run(plugin, func(t *testing.T) {
			config := rules.Defaults()
			for i, expression := range expressions {
				config.Filters = append(config.Filters, rules.FilterRule{Name: fmt.Sprintf("%s-%d", strings.ToLower(plugin), i), Expression: expression})
			}
			p, err := rules.New(config)
			e := engineOf(t, p, err)
			f, fit, rejected := newInTree(t, func(*schedulerapi.NodeResourcesFitArgs) {}, plugin), 0, 0
			rapid.Check(t, func(t *rapid.T) {
				d := draw{t}
				nodes, pods := d.cluster()
				f.set(nodes, pods)
				pod := d.pod("pod")
				comparable(pod)
				got, a := filter(t, e, nodes, pods, pod), f.begin(pod)
				for _, node := range nodes {
					_, reasons := a.filter(node.Name)
					want := reasons == nil && a.preFilterLeaves(node.Name)
					if want {
						fit++
					} else {
						rejected++
					}
					if (got[node.Name] == "") != want {
						t.Fatalf("node %s: the rules return %q, and the plugin %q", node.Name, got[node.Name], reasons)
					}
				}
			})
			if t.Logf("the pod fits on %d nodes, and not on %d", fit, rejected); fit == 0 || rejected == 0 {
				t.Error("all are the same")
			}
		})
	}
}

// comparable replaces what rules cannot express: the operators of tolerations that compare numbers, and all but the first of
// several terms, because the estimated cost of so many nested loops is too high.
func comparable(pod *corev1.Pod) {
	for i := range pod.Spec.Tolerations {
		if t := &pod.Spec.Tolerations[i]; t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt {
			t.Operator = corev1.TolerationOpExists
		}
	}
	if pod.Spec.Affinity != nil {
		required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		required.NodeSelectorTerms = required.NodeSelectorTerms[:min(1, len(required.NodeSelectorTerms))]
	}
}

// engineOf returns an engine with only the policy.
func engineOf(t *testing.T, p policy.Policy, err error) *engine.Engine {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "Policy", Policy: p, Weight: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// request is a request for the pod and the nodes.
func request(nodes []*corev1.Node, pods []*corev1.Pod, pod *corev1.Pod) engine.Request {
	req := engine.Request{Pod: trimmed(pod), View: view(nodes, pods)}
	for _, node := range nodes {
		req.Nodes = append(req.Nodes, req.View.Node(node.Name))
	}
	return req
}

// filter returns why the pod does not fit on nodes, by name; "": it fits.
func filter(t *rapid.T, e *engine.Engine, nodes []*corev1.Node, pods []*corev1.Pod, pod *corev1.Pod) map[string]string {
	var result engine.Result
	if err := e.Filter(context.Background(), request(nodes, pods, pod), &result); err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, r := range result.Rejected {
		said[nodes[r.Index].Name] = r.Reason.Text
	}
	return said
}
