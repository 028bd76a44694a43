package policy_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// teamNodes keeps nodes that are labelled with a team for the pods of that team,
// and among the others prefers those on which most pods are the team's own.
type teamNodes struct {
	pods *snapshot.Fact[map[string]int64]
}

var otherTeam = &policy.Reason{Code: "OtherTeam", Text: "node(s) belong to another team"}

func newTeamNodes() (policy.Policy, error) {
	return &teamNodes{pods: snapshot.NewFact(func(n *snapshot.Node) map[string]int64 {
		pods := map[string]int64{}
		for _, pod := range n.Pods {
			pods[pod.Labels["team"]]++
		}
		return pods
	})}, nil
}

// Inputs says that Score counts pods: without it, Score misses those that kube-scheduler is binding.
func (*teamNodes) Inputs() policy.Inputs { return policy.Inputs{CountsPods: true} }

func (t *teamNodes) Prepare(_ context.Context, pod *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
	return &teamCycle{t, pod.Labels["team"]}, nil
}

type teamCycle struct {
	*teamNodes
	team string
}

func (c *teamCycle) Filter(n *snapshot.Node) policy.Verdict {
	if owner, ok := n.Object.Labels["team"]; ok && owner != c.team {
		return policy.Verdict{Reason: otherTeam, Unresolvable: true}
	}
	return policy.Verdict{}
}

func (c *teamCycle) Score(n *snapshot.Node) int64 {
	return policy.MaxScore * (*c.pods.Of(n))[c.team] / max(1, int64(len(n.Pods)))
}

func Example() {
	var cluster snapshot.Builder
	for _, node := range policytest.Nodes(`
- metadata: {name: red, labels: {team: red}}
- metadata: {name: shared}
- metadata: {name: spare}
`) {
		cluster.SetNode(node)
	}
	for _, pod := range policytest.Pods(`
- {metadata: {name: a, labels: {team: blue}}, spec: {nodeName: shared}}
- {metadata: {name: b, labels: {team: red}}, spec: {nodeName: shared}}
`) {
		cluster.SetPod(pod)
	}
	view := cluster.View()
	pod := policytest.Pods(`metadata: {name: new, labels: {team: blue}}`)[0]

	p, _ := newTeamNodes()
	cycle, _ := p.Prepare(context.Background(), pod, view)
	for n := range view.All() {
		if v := cycle.(policy.Filter).Filter(n); !v.Fits() {
			fmt.Printf("%s: %s\n", n.Name, v.Reason.Text)
			continue
		}
		fmt.Printf("%s: fits, score %d\n", n.Name, cycle.(policy.Score).Score(n))
	}
	// Output:
	// red: node(s) belong to another team
	// shared: fits, score 50
	// spare: fits, score 0
}
