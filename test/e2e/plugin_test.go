package e2e

import (
	"strings"
	"testing"

	"outboard.dev/outboard/controlplane"
)

// plugin starts kube-scheduler with the plugin, whose configuration has these lines.
func (th *theater) plugin(configuration string, env ...string) *controlplane.Scheduler {
	th.t.Helper()
	path, err := plugged()
	if err != nil {
		th.t.Fatal(err)
	}
	args := "apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nadmin: {address: 127.0.0.1:0}\n" + configuration
	config := `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {multiPoint: {enabled: [{name: Outboard}]}}
  pluginConfig:
  - name: Outboard
    args:
      ` + strings.ReplaceAll(strings.TrimSpace(args), "\n", "\n      ") + "\n"
	s, err := th.StartScheduler(th.ctx, controlplane.SchedulerOptions{Config: config, Env: env, Verbosity: 3, Path: path})
	if err != nil {
		th.t.Fatal(err)
	}
	th.t.Cleanup(func() {
		if th.t.Failed() {
			th.t.Logf("kube-scheduler:\n%s", tail(s.Log(), 8000))
		}
	})
	return s
}

// Inside kube-scheduler policies filter and score as behind its calls.
func TestPluginFiltersAndScores(t *testing.T) {
	th := open(t)
	th.nodes(
		controlplane.NodeSpec{Name: "without"},
		controlplane.NodeSpec{Name: "with", Images: map[string]int64{"registry.example/app:1": 900 << 20}},
	)
	th.plugin(`
profiles:
- policies:
  - {type: PodLimit, config: {max: 2, selector: {matchLabels: {app: web}}}}
  - {type: ImageLocality, weight: 3}
`)
	web := func(name string) controlplane.PodSpec {
		return controlplane.PodSpec{Name: name, Image: "registry.example/app:1", Labels: map[string]string{"app": "web"}}
	}
	for _, tt := range []struct{ name, want string }{{"first", "with"}, {"second", "with"}, {"third", "without"}, {"fourth", "without"}} {
		if pod := th.bound(web(tt.name)); pod.Spec.NodeName != tt.want {
			t.Errorf("%s is on node %s, want %s", tt.name, pod.Spec.NodeName, tt.want)
		}
	}
	const full = "2 node(s) have reached their limit of matching pods"
	if placed := th.place(web("fifth")); !strings.Contains(placed.Waiting, full) {
		t.Errorf("fifth waits since %q, want %q", placed.Waiting, full)
	}
	if pod := th.bound(controlplane.PodSpec{Name: "other"}); pod.Spec.NodeName == "" {
		t.Errorf("a pod that no policy concerns is not bound: %v", pod.Status.Conditions)
	}
}
