package nightly

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// With the weights in docs/scores.md, the smallest weight of an extender counts less than a plugin; with kube-scheduler's own, as much.
func TestLessInfluenceThanAPlugin(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/scores.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "## Less influence than a plugin\n")
	_, block, fenced := strings.Cut(block, "```yaml\n")
	block, _, closed := strings.Cut(block, "```\n")
	if !found || !fenced || !closed {
		t.Fatal("docs/scores.md has no weights")
	}
	var defaults map[string]any
	if err := yaml.Unmarshal([]byte(block), &defaults); err != nil {
		t.Fatal(err)
	}
	delete(defaults, "profiles")
	without, err := yaml.Marshal(defaults)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ config, want string }{
		"ten times the weights": {block, "idle"},
		"the default weights":   {string(without), "busy"},
	} {
		t.Run(name, func(t *testing.T) {
			th := theater.Open(t)
			th.Nodes(controlplane.NodeSpec{Name: "busy", CPU: "8", Memory: "16Gi"}, controlplane.NodeSpec{Name: "idle", CPU: "8", Memory: "16Gi"})
			th.Create(controlplane.PodSpec{Name: "runs", NodeName: "busy", CPU: "4", Memory: "8Gi"})
			o := th.Outboard(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- policies:
  - {type: Rules, config: {scores: [{name: busy, expression: 'node.metadata.name == "busy" ? 100 : 0'}]}}
`)
			config, err := o.SchedulerConfig(tt.config)
			if err != nil {
				t.Fatal(err)
			}
			th.Scheduler(config)
			if pod := th.Bound(controlplane.PodSpec{Name: "new", CPU: "1", Memory: "2Gi"}); pod.Spec.NodeName != tt.want {
				t.Errorf("the pod is on %s, want %s", pod.Spec.NodeName, tt.want)
			}
		})
	}
}
