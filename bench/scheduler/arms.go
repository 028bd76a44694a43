package main

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// extenderKind is which program extends kube-scheduler.
type extenderKind string

const (
	none     extenderKind = ""
	outboard extenderKind = "outboard"
	tutorial extenderKind = "tutorial"
	ideal    extenderKind = "ideal"
	// idealScores is ideal with as many scores as those of Outboard in the benchmark, which kube-scheduler has to decode.
	idealScores extenderKind = "ideal-scores"
)

// arm is one way to configure kube-scheduler.
type arm struct {
	name     string
	extender extenderKind
	// shortlist is how many nodes the extender returns, or the plugin names, at most; 0: all, or none, so that kube-scheduler
	// evaluates its sample.
	shortlist int
	// noFilter leaves filterVerb out, so that the extender only scores.
	noFilter bool
	// fullNodes makes kube-scheduler send nodes instead of names.
	fullNodes bool
	// percentage replaces the setting's percentageOfNodesToScore; 0: does not. An arm with a percentage of its own runs
	// kube-scheduler's Filter plugins on other numbers of nodes, so it has no normalized figure.
	percentage int
	// batching lets kube-scheduler reuse the result of one pod for the next identical one. Its default configuration never does:
	// pods with default topology constraints are not compared.
	batching bool
	// plugin runs Outboard's policies inside kube-scheduler.
	plugin bool
	// idealPlugin replaces Outboard's plugin by one that does nothing except name nodes.
	idealPlugin bool
	// tls serves the extender over TLS, with a client certificate.
	tls bool
}

// lowPercentage of 5,000 nodes is as few as kube-scheduler accepts: 100 nodes.
const lowPercentage = 2

var arms = []arm{
	{name: "stock"},
	{name: "stock-all", percentage: 100},
	{name: "stock-batching", batching: true},
	{name: "plugin", plugin: true},
	{name: "plugin-64", plugin: true, shortlist: 64},
	{name: "plugin-8", plugin: true, shortlist: 8},
	{name: "plugin-batching", plugin: true, batching: true},
	{name: "ideal-plugin", plugin: true, idealPlugin: true},
	{name: "ideal-plugin-8", plugin: true, idealPlugin: true, shortlist: 8},
	{name: "ideal-plugin-batching", plugin: true, idealPlugin: true, batching: true},
	{name: "outboard", extender: outboard},
	{name: "outboard-64", extender: outboard, shortlist: 64},
	{name: "outboard-8", extender: outboard, shortlist: 8},
	{name: "outboard-8-tls", extender: outboard, shortlist: 8, tls: true},
	{name: "outboard-8-all", extender: outboard, shortlist: 8, percentage: 100},
	{name: "outboard-8-low", extender: outboard, shortlist: 8, percentage: lowPercentage},
	{name: "outboard-1", extender: outboard, shortlist: 1},
	{name: "outboard-scoring", extender: outboard, noFilter: true},
	{name: "outboard-nodes", extender: outboard, fullNodes: true},
	{name: "tutorial", extender: tutorial},
	{name: "tutorial-nodes", extender: tutorial, fullNodes: true},
	{name: "ideal", extender: ideal},
	{name: "ideal-scores", extender: idealScores},
	{name: "ideal-8", extender: ideal, shortlist: 8},
	{name: "ideal-1", extender: ideal, shortlist: 1},
}

func armNamed(name string) (arm, error) {
	i := slices.IndexFunc(arms, func(a arm) bool { return a.name == name })
	if i < 0 {
		names := make([]string, len(arms))
		for i, a := range arms {
			names[i] = a.name
		}
		return arm{}, fmt.Errorf("there is no arm %q, there are: %s", name, strings.Join(names, ", "))
	}
	return arms[i], nil
}

// describe returns the description of the arm in the table.
func (a arm) describe() string {
	parts := []string{map[extenderKind]string{
		none: "kube-scheduler alone", outboard: "Outboard", tutorial: "tutorial handler", ideal: "ideal handler",
		idealScores: "ideal handler with scores",
	}[a.extender]}
	if a.plugin {
		parts[0] = "Outboard in kube-scheduler"
	}
	if a.idealPlugin {
		parts[0] = "plugin that does nothing"
	}
	if a.plugin && a.shortlist > 0 {
		parts = append(parts, fmt.Sprintf("shortlist %d", a.shortlist))
	}
	if a.extender != none {
		add := func(condition bool, part string) {
			if condition {
				parts = append(parts, part)
			}
		}
		add(a.fullNodes, "full nodes")
		add(!a.fullNodes, "names")
		add(a.noFilter, "scoring only")
		add(a.shortlist > 0, fmt.Sprintf("shortlist %d", a.shortlist))
		add(a.tls, "mutual TLS")
	}
	if a.percentage > 0 {
		parts = append(parts, fmt.Sprintf("percentageOfNodesToScore %d", a.percentage))
	}
	if a.batching {
		parts = append(parts, "batching")
	}
	return strings.Join(parts, ", ")
}

// unlimited are so many requests per second that kube-scheduler never waits. With its default of 50, every arm places 50 pods per second.
const unlimited = 5000

// schedulerConfig is the KubeSchedulerConfiguration of the arm, with the extender at the URL, and the admin address of the plugin.
func (a arm) schedulerConfig(s setting, url, admin string) (string, error) {
	config := map[string]any{
		"apiVersion":       "kubescheduler.config.k8s.io/v1",
		"kind":             "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{"qps": unlimited},
	}
	percentage := s.percentage
	if a.percentage > 0 {
		percentage = a.percentage
	}
	if percentage > 0 {
		config["percentageOfNodesToScore"] = percentage
	}
	if profile := a.profile(s, admin); len(profile) > 0 {
		config["profiles"] = []any{profile}
	}
	if a.extender != none {
		e := map[string]any{
			"urlPrefix": url, "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 1,
			"nodeCacheCapable": !a.fullNodes, "httpTimeout": "30s",
		}
		if a.noFilter {
			delete(e, "filterVerb")
		}
		if s.kind == sharing {
			e["bindVerb"], e["preemptVerb"] = "bind", "preempt"
			e["managedResources"] = []any{map[string]any{"name": gpuMemory}, map[string]any{"name": gpuCount}}
		}
		config["extenders"] = []any{e}
	}
	text, err := yaml.Marshal(config)
	return string(text), err
}

// profile is the arm's profile of kube-scheduler; empty for the default one.
func (a arm) profile(s setting, admin string) map[string]any {
	profile, args := map[string]any{}, []any{}
	if a.batching {
		args = append(args, map[string]any{
			"name": "PodTopologySpread", "args": map[string]any{"defaultingType": "List", "defaultConstraints": []any{}},
		})
	}
	if a.plugin {
		enabled := map[string]any{"enabled": []any{map[string]any{"name": "Outboard"}}}
		plugins := map[string]any{"multiPoint": enabled}
		own := map[string]any{
			"apiVersion": "outboard.dev/v1alpha1", "kind": "OutboardConfiguration", "admin": map[string]any{"address": admin},
			"profiles": []any{map[string]any{"policies": policies(s), "shortlist": a.shortlist}},
		}
		if s.kind == sharing && !a.idealPlugin {
			plugins["bind"] = enabled // with allocations
		}
		switch {
		case a.idealPlugin:
			own["shortlist"] = a.shortlist
		case a.shortlist > 0:
			plugins["postFilter"] = enabled
		}
		profile["plugins"] = plugins
		args = append(args, map[string]any{"name": "Outboard", "args": own})
	}
	if len(args) > 0 {
		profile["pluginConfig"] = args
	}
	return profile
}

// policies are those of all arms with Outboard.
func policies(s setting) []any {
	if s.kind == sharing {
		return []any{map[string]any{"type": "GPUMemory", "config": map[string]any{"scoringStrategy": map[string]any{"type": "LeastWaste"}}}}
	}
	selector := map[string]any{"matchLabels": map[string]any{"app": "bench"}}
	return []any{
		map[string]any{"type": "ImageLocality"},
		map[string]any{"type": "PodLimit", "config": map[string]any{"max": 110, "selector": selector}},
	}
}

// outboardConfig is the configuration of Outboard as an extender. What depends on the place is set by the stage.
func (a arm) outboardConfig(s setting) (string, error) {
	serving := map[string]any{"shutdownDelay": "0s"} // nobody waits for it
	if a.tls {
		serving["tls"] = map[string]any{
			"certFile": "server.crt", "keyFile": "server.key", "clientCAFile": "ca.crt", "allowedClients": []any{"kube-scheduler"},
		}
	}
	serving["insecure"] = !a.tls
	profile := map[string]any{"path": "/", "policies": policies(s), "shortlist": a.shortlist} // by default 8 with allocations
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "outboard.dev/v1alpha1", "kind": "OutboardConfiguration",
		"serving": serving, "profiles": []any{profile},
		"clientConnection": map[string]any{"qps": unlimited},
	})
	return string(text), err
}
