package main

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/simulate"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policies/resourceclaims"
	"outboard.dev/outboard/policy"
)

// arm is one way to place pods.
type arm struct {
	name     string
	strategy policy.ScoringStrategyType
	// shortlist is how many nodes filter returns; 0: all that fit.
	shortlist int
	// prioritize makes kube-scheduler ask for scores, which decide.
	prioritize bool
	// claims is the policy for pods with ResourceClaims, and alone kube-scheduler without Outboard;
	// the other fields are ignored then.
	claims, alone bool
}

var arms = []arm{
	{name: "kube-scheduler scores, best-fit GPU", strategy: policy.BinPack},
	{name: "LeastWaste, by prioritize", strategy: gpumemory.LeastWaste, prioritize: true},
	{name: "LeastWaste, shortlist of 1", strategy: gpumemory.LeastWaste, shortlist: 1},
}

// claimArms are those for pods with ResourceClaims.
var claimArms = []arm{{name: "kube-scheduler alone", alone: true}, {name: "ResourceClaims, LeastWaste", claims: true}}

// decisive is a weight with which one of the 10 levels of an extender's scores outweighs
// all of kube-scheduler's own.
const decisive = 1000

// config is that of the policy. Pods of the trace want parts of several GPUs.
func (a *arm) config() gpumemory.Config {
	c := gpumemory.Defaults()
	c.ScoringStrategy.Type, c.MultiGPU = a.strategy, true
	return c
}

// outboard is the configuration of Outboard. What depends on the place is set by the
// stage.
func (a *arm) outboard() (string, error) {
	profile := map[string]any{
		"path":             "/",
		"managedResources": []any{},     // kube-scheduler calls for every pod, in each arm
		"shortlist":        a.shortlist, // the default is 8
		"policies":         []any{map[string]any{"type": "GPUMemory", "config": a.config()}},
	}
	if a.claims {
		profile = map[string]any{"shortlist": 1, "policies": []any{map[string]any{"type": "ResourceClaims", "config": claimsConfig()}}}
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "outboard.dev/v1alpha1",
		"kind":       "OutboardConfiguration",
		"serving": map[string]any{"tls": map[string]any{
			"certFile": "server.crt", "keyFile": "server.key", "clientCAFile": "ca.crt", "allowedClients": []any{"kube-scheduler"},
		}},
		"clientConnection": map[string]any{"qps": apiQPS},
		"profiles":         []any{profile},
	})
	return string(text), err
}

// apiQPS is how many requests per second Outboard and kube-scheduler may make: here they
// need not leave anything of the API server to others.
const apiQPS = 5000

// claimsConfig is that of the policy for claims.
func claimsConfig() resourceclaims.Config {
	c := resourceclaims.Defaults()
	c.ScoringStrategy.Type = resourceclaims.LeastWaste
	return c
}

// scheduler is the configuration of kube-scheduler: its defaults, and the extender. For claims,
// users get the extender from outboard setup scheduler.
func (a *arm) scheduler() string {
	if a.alone || a.claims {
		return fmt.Sprintf(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {qps: %d, burst: %d}
`, apiQPS, apiQPS)
	}
	prioritize := ""
	if a.prioritize {
		prioritize = fmt.Sprintf("\n  prioritizeVerb: prioritize\n  weight: %d", decisive)
	}
	return fmt.Sprintf(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {qps: %d, burst: %d}
extenders:
- urlPrefix: https://127.0.0.1/
  filterVerb: filter%s
  bindVerb: bind
  nodeCacheCapable: true
  httpTimeout: 10s
`, apiQPS, apiQPS, prioritize)
}

// simulated is the same for the simulation.
func (a *arm) simulated() (simulate.Scheduler, []simulate.Extender, error) {
	scheduler := simulate.Scheduler{ResourceScore: simulate.LeastAllocated, NoPrioritize: !a.prioritize}
	if a.alone {
		return scheduler, nil, nil
	}
	name, shortlist := "GPUMemory", a.shortlist
	p, err := gpumemory.New(a.config())
	if a.claims {
		name, shortlist, scheduler.NoPrioritize = "ResourceClaims", 1, false
		p, err = resourceclaims.New(claimsConfig())
	}
	if err != nil {
		return scheduler, nil, err
	}
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: name, Policy: p, Weight: 1}}, Shortlist: shortlist})
	return scheduler, []simulate.Extender{{Engine: e, Weight: decisive}}, err
}
