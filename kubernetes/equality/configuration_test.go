package equality

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/snapshot"
)

type object = map[string]any

// configuration draws a valid configuration file, as JSON, with one profile of several policies.
func (d draw) configuration() []byte {
	profile := object{
		"shortlist": pick[any](d, "shortlist", nil, nil, nil, nil, 1, 3),
		"policies":  d.policies(),
	}
	if d.chance(20, "managed resources") {
		profile["managedResources"] = []object{{"name": gpuMemory}, {"name": gpuCount}, {"name": fpga}, {"name": seat}}
	} else if d.chance(80, "every pod") {
		profile["managedResources"] = []object{}
	}
	if first := profile["policies"].([]object)[1]; profile["shortlist"] != nil && first["weight"] == 0 {
		first["weight"] = 1 // without scores all nodes are equal
	}
	var signals []object
	for _, name := range nodeSignals() {
		signals = append(signals, object{"name": name, "maxAge": maxAge.String(), "world": object{"signal": name, "about": policy.AboutNodes}})
	}
	for _, name := range keySignals() {
		signals = append(signals, object{"name": name, "maxAge": maxAge.String(), "world": object{"signal": name, "about": policy.AboutKeys}})
	}
	text, err := json.Marshal(object{
		"apiVersion": config.APIVersion, "kind": config.Kind, "serving": object{"insecure": true}, "admin": object{"address": "127.0.0.1:0"}, "log": object{"level": "Error"},
		"signals": signals, "profiles": []object{profile},
	})
	if err != nil {
		panic(err) // of maps, lists and numbers
	}
	return text
}

// policies draws one or several policies, each of another type.
func (d draw) policies() []object {
	types := []struct {
		name string
		draw func(draw) object
	}{
		{"PodLimit", draw.podLimit}, {"ImageLocality", draw.imageLocality}, {"GPUMemory", draw.gpuMemory}, {"Devices", draw.fpgas},
		{"Licenses", draw.licenses}, {"Rules", draw.rules}, {"HardwareHealth", draw.hardwareHealth}, {"Utilization", draw.utilization},
		{"Cost", draw.cost}, {"RemoteClusters", draw.remoteClusters},
	}
	var policies []object
	first := pick(d, "first policy", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 2) // policies that make allocations are more frequent
	for i := range pick(d, "policies", 1, 1, 2, 3, 4) {
		// Neither 3 nor a multiple of it divides 10, so each step selects another policy.
		t := types[(first+3*i)%len(types)]
		q := object{
			"type": t.name, "config": t.draw(d), "weight": pick(d, "weight", 1, 2, 100, 0),
			"failurePolicy": pick(d, "failure policy", policy.Fail, policy.Ignore),
		}
		if slices.Contains([]string{"GPUMemory", "Devices", "Licenses"}, t.name) {
			delete(q, "failurePolicy") // a policy that makes allocations cannot be ignored
		}
		policies = append(policies, q)
	}
	return append([]object{{"type": observerType, "weight": 0}}, policies...) // comes first, because no policy is called after one that fails
}

func (d draw) whenStale(in object) object {
	in["whenStale"] = pick(d, "when stale", policy.Neutral, policy.Reject)
	return in
}

func (d draw) podLimit() object {
	return object{
		"max": d.between(1, 4, "max"), "maxFrom": pick(d, "max from", nil, object{"label": "example.com/max-pods"}),
		"selector": pick(d, "selector", object{}, object{"matchLabels": object{"app": "web"}},
			object{"matchExpressions": []object{{"key": "app", "operator": "In", "values": []string{"web", "batch"}}}}),
		"namespaces": pick(d, "namespaces", nil, []string{"*"}, []string{"default"}),
	}
}

func (d draw) imageLocality() object {
	return object{}
}

func (d draw) gpuMemory() object {
	strategy, selection := pick(d, "strategy", "BinPack", "Spread", "LeastWaste"), pick(d, "selection", "BinPack", "Spread")
	if strategy == "LeastWaste" && d.unlearned {
		strategy = "Spread"
	}
	if strategy == "LeastWaste" {
		selection = "BinPack"
	}
	return object{
		"gpuSelection": selection, "scoringStrategy": object{"type": strategy},
		"sizesFrom": pick(d, "sizes from", nil, object{"annotation": "example.com/gpu-sizes"}),
		"multiGPU":  d.chance(50, "multi GPU"), "multiContainer": d.chance(50, "multi container"),
	}
}

func (d draw) fpgas() object {
	c := object{"resource": fpga, "scoringStrategy": object{"type": pick(d, "strategy", "BinPack", "Spread")}}
	switch pick(d, "units", "None", "Numbered", "Named") {
	case "None":
		c["capacityFrom"] = pick(d, "capacity from", nil, object{"annotation": "example.com/fpga-count"})
		return c
	case "Numbered":
		c["units"], c["capacityFrom"] = "Numbered", pick(d, "capacity from", nil, object{"annotation": "example.com/fpga-count"})
	case "Named":
		c["units"], c["unitsFrom"] = "Named", object{"annotation": "example.com/fpgas"}
	}
	switch pick(d, "allocation", "whole", "groups", "shares") {
	case "groups":
		c["groupsFrom"], c["sameGroup"] = object{"annotation": "example.com/fpga-groups"}, pick(d, "same group", "Preferred", "Required")
	case "shares":
		c["allocationMode"], c["sharesPerUnit"] = "Shares", d.between(1, 4, "shares")
	}
	return c
}

func (d draw) licenses() object {
	server := object{"signal": "flexnet", "usedIncludesPods": d.chance(50, "used includes pods")}
	solver := pick(d, "solver",
		object{"seats": 3}, object{"seats": 5, "reservedSeats": 1, "maxPerNamespace": 2}, object{"server": server},
		object{"seats": 2, "server": server, "reservedSeats": 1}, object{"nodeLabel": object{"key": "example.com/solver"}},
		object{"nodeLabel": object{"key": "example.com/solver", "values": []string{"new"}}, "seatsPerNode": 1}, object{"seats": 1, "seatsPerNode": 1})
	solver["name"], solver["resource"] = "solver", seat
	cad := pick(d, "cad", object{"seats": 1}, object{"seatsPerNode": 1, "server": server})
	cad["name"] = "cad"
	return d.whenStale(object{"features": []object{solver, cad}})
}

func (d draw) rules() object {
	filters := []object{
		{"name": "memory", "expression": `usage.free["memory"].compareTo(podRequests["memory"]) >= 0`, "message": "node(s) had too little memory free"},
		{"name": "pods", "expression": `usage.pods < int(node.metadata.?labels[?"example.com/max-pods"].orValue("3"))`, "failurePolicy": "Ignore"},
		{"name": "team", "matchConditions": []object{{"name": "condition", "expression": `has(pod.metadata.labels) && "team" in pod.metadata.labels`}}, "expression": `node.metadata.labels["team"] == pod.metadata.labels["team"]`},
		{"name": "kubelet", "expression": `semver(node.status.nodeInfo.kubeletVersion, true).compareTo(semver("1.33.0")) >= 0`, "resolvable": true},
		{"name": "temperature", "expression": `signals.temperature < 85`},
		{"name": "office-hours", "expression": `keyed["office-hours"][""] == 0.0`},
		{"name": "conditional", "matchConditions": []object{{"name": "condition", "expression": `pod.metadata.labels["app"] == "web"`}}, "expression": `node.metadata.name != "node-00"`, "failurePolicy": pick(d, "condition fails", "Ignore", "Fail")},
	}
	scores := []object{
		{"name": "free", "expression": `usage.free["memory"].asApproximateFloat() / 1e9`, "weight": d.between(1, 3, "weight of a rule")},
		{"name": "rating", "expression": `int(node.metadata.labels["rating"])`},
		{"name": "cool", "expression": `100.0 - signals.temperature`},
		{"name": "few", "expression": `100 - 20 * usage.pods`},
	}
	keep := func(all []object, what string) []object {
		return slices.DeleteFunc(all, func(object) bool { return !d.chance(40, what) })
	}
	c := d.whenStale(object{"filters": keep(filters, "filter"), "scores": keep(scores, "score")})
	if len(c["filters"].([]object))+len(c["scores"].([]object)) == 0 {
		c["scores"] = []object{{"name": "few", "expression": `100 - 20 * usage.pods`}}
	}
	return c
}

func (d draw) hardwareHealth() object {
	var rules []object
	add := func(name, key string, sign any) {
		if len(rules) > 0 && !d.chance(50, name) {
			return
		}
		rule := object{"name": name, key: sign}
		if d.chance(50, "reject") {
			rule["reject"] = true
		} else {
			rule["penalty"] = d.between(1, 100, "penalty")
		}
		rule["resources"] = pick(d, "resources", nil, []string{gpuMemory})
		rules = append(rules, rule)
	}
	add("deadlock", "nodeCondition", object{"type": "KernelDeadlock"})
	add("spot", "nodeLabel", object{"key": spotKey, "values": []string{"spot"}})
	add("hot", "signal", pick(d, "threshold", object{"name": "temperature", "above": 80}, object{"name": "temperature", "below": 20}, object{"name": "temperature"}))
	return d.whenStale(object{"rules": rules, "tolerationAnnotation": "example.com/tolerate-degraded"})
}

func (d draw) utilization() object {
	use := func(name string) object {
		u := object{"signal": name, "unit": pick(d, "unit", "Fraction", "Percent", "Absolute")}
		if d.chance(50, "max") {
			u["max"] = 90
		}
		return u
	}
	c := object{"cpu": use("cpu"), "metricDelay": pick(d, "metric delay", "1m", "0s")}
	if d.chance(50, "memory too") {
		c["memory"] = use("memory")
	}
	return d.whenStale(c)
}

func (d draw) cost() object {
	prices := slices.DeleteFunc([]object{
		{"signal": "price"}, {"signal": "prices", "keyLabels": []string{instanceKey, zoneKey}}, {"priceFrom": object{"label": priceKey}}, {"priceFrom": object{"annotation": priceKey}},
	}, func(object) bool { return !d.chance(50, "source") })
	if len(prices) == 0 {
		prices = []object{{"priceFrom": object{"label": priceKey}}}
	}
	strategy := pick(d, "strategy", object{"type": "PodCost"}, object{"type": "PodCost", "sunkCost": true}, object{"type": "NodeCost"})
	c := object{"prices": prices, "scoringStrategy": strategy}
	if d.chance(50, "max price") {
		c["maxPrice"] = 1.5
	}
	if d.chance(50, "spot") {
		c["spot"] = object{"fromPriority": 100}
	}
	return d.whenStale(c)
}

func (d draw) remoteClusters() object {
	return d.whenStale(object{
		"clusterLabel": clusterKey,
		"clusters":     []object{{"name": "west", "signal": "west", "weight": d.between(1, 5, "weight of a cluster")}, {"name": "east", "signal": "east"}},
	})
}

// load loads the configuration as outboard does.
func load(t fataler, text []byte) *config.Config {
	t.Helper()
	c, err := config.Parse("case.yaml", text, config.Types{Policies: policyTypes(new(atomic.Pointer[snapshot.View])), Signals: []signal.Type{new(feeds).source()}})
	if err != nil {
		t.Fatalf("the configuration is not valid: %v\n%s", err, text)
	}
	return c
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// engineOf returns an engine with the policies of the profile.
func engineOf(t fataler, profile *config.Profile) *engine.Engine {
	t.Helper()
	o := engine.Options{}
	if profile.Shortlist != nil {
		o.Shortlist = *profile.Shortlist
	}
	for _, p := range profile.Policies {
		o.Policies = append(o.Policies, engine.WeightedPolicy{Name: p.Name, Policy: p.Policy, Weight: p.Weight, FailurePolicy: p.FailurePolicy})
	}
	e, err := engine.New(o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return e
}

// nodeSignals and keySignals are all signals: by node, and by other keys.
func nodeSignals() []string {
	return []string{"cpu", "memory", "temperature", "price"}
}

func keySignals() []string { return slices.Sorted(maps.Keys(signalKeys())) }

func signalKeys() map[string][]string {
	remote := []string{"cpu/total", "cpu/free", "cpu/largest", "memory/total", "memory/free", "pods/total", "pods/free"}
	return map[string][]string{
		"prices": {"large/a", "small/a", "large/b"}, "flexnet": {"solver/total", "solver/used", "cad/total", "cad/used"},
		"west": remote, "east": remote, "office-hours": {""},
	}
}

func describe(v any) string {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}
