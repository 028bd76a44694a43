package standard_test

import (
	"regexp"
	"slices"
	"testing"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// line is the form that policy.Explainer defines.
var line = regexp.MustCompile(`^[^\s:][^:\n]*: [^\n]*[^\s.]$`)

// Every policy explains a decision, in lines of one form, with and without current signals.
func TestEveryPolicyExplains(t *testing.T) {
	c := loadAll(t)
	view := busyView(c, 2)
	e, err := engine.New(engine.Options{Policies: members(c)})
	if err != nil {
		t.Fatal(err)
	}
	known := view.Node("node-00000")
	unknown := known.Object.DeepCopy()
	unknown.Name = "without-signals"
	unknown.Labels["example.com/suspect"], unknown.Labels["example.com/cluster"] = "yes", "west"
	x, err := e.Explain(t.Context(), engine.Request{Pod: busyPod(0), View: view, Nodes: []*snapshot.Node{known, snapshot.NewNode(unknown)}})
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string][]string{}
	for _, notes := range x.Pod {
		explained[notes.Policy] = append(explained[notes.Policy], notes.Notes...)
	}
	for _, n := range x.Nodes {
		for _, p := range n.Policies {
			explained[p.Policy] = append(explained[p.Policy], p.Notes...)
		}
	}
	for _, p := range c.Profiles[0].Policies {
		if len(explained[p.Name]) == 0 {
			t.Errorf("%s explains nothing", p.Name)
		}
		for _, text := range explained[p.Name] {
			if !line.MatchString(text) {
				t.Errorf("%s: the line %q does not have the form <what>: <value>", p.Name, text)
			}
		}
	}
	for name, want := range map[string]string{
		"Cost":           "price: unknown",
		"RemoteClusters": "cluster west: unknown (signal west has no value for pods/free)",
		"Utilization":    "CPU: unknown (signal cpu-use has no value for the node)",
	} {
		if !slices.Contains(explained[name], want) {
			t.Errorf("%s explains %q, without %q", name, explained[name], want)
		}
	}
}
