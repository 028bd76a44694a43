package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// setting is what a table of results is about.
type setting struct {
	nodes      int
	percentage int // percentageOfNodesToScore; 0: kube-scheduler's own choice
	templates  int
	pods       int
	kind       podKind
	arms       []arm
}

// podKind is what pods have that matters to more than the policies of most settings.
type podKind string

const (
	plain podKind = "plain"
	// selected pods are those of a Service: then kube-scheduler spreads them over nodes and zones, for which it reads all nodes and pods.
	selected podKind = "selected"
	// apart are pods that allow no other one of them on their node.
	apart podKind = "apart"
	// restricted pods exclude one node by name, so that the plugin names no nodes for them.
	restricted podKind = "restricted"
	// sharing pods request memory of one GPU. Only nodes for such pods have GPUs.
	sharing podKind = "gpu"
)

// kinds describes the kinds of pods.
var kinds = map[podKind]string{
	plain: "", selected: ", selected by a Service", apart: ", with anti-affinity to each other", restricted: ", not eligible for a shortlist",
	sharing: ", with GPU memory",
}

func (s setting) String() string {
	sampling := "default sampling"
	if s.percentage > 0 {
		sampling = fmt.Sprintf("percentageOfNodesToScore %d", s.percentage)
	}
	templates := "pods of one template"
	if s.templates > 1 {
		templates = fmt.Sprintf("pods of %d templates", s.templates)
	}
	return fmt.Sprintf("%d nodes, %s, %s%s", s.nodes, sampling, templates, kinds[s.kind])
}

// manyTemplates is how many templates pods have that are not of one.
const manyTemplates = 100

// defaultPods is how many pods wait for each arm. An attempt that looks at all nodes takes several times as long as one that looks at
// a part of them.
func defaultPods(percentage int) int {
	if percentage > 50 {
		return 400
	}
	return 1000
}

func newSetting(nodes, percentage, templates int, arms ...string) setting {
	s := setting{nodes: nodes, percentage: percentage, templates: templates, pods: defaultPods(percentage), kind: plain}
	for _, name := range arms {
		s.arms = append(s.arms, mustArm(name))
	}
	return s
}

// mustArm is for names in this file.
func mustArm(name string) arm {
	a, err := armNamed(name)
	if err != nil {
		panic(err)
	}
	return a
}

var fullPlan = []setting{
	newSetting(5000, 0, 1, "stock", "stock-batching", "plugin", "plugin-batching", "ideal-plugin", "ideal-plugin-batching", "outboard", "outboard-64", "outboard-8",
		"outboard-1", "outboard-scoring", "outboard-8-low", "outboard-nodes", "tutorial", "tutorial-nodes", "ideal", "ideal-scores", "ideal-8",
		"ideal-1"),
	newSetting(5000, 100, 1, "stock", "plugin", "outboard", "outboard-8", "outboard-1", "tutorial", "ideal", "ideal-scores", "ideal-8", "ideal-1"),
	newSetting(5000, 0, manyTemplates, "stock", "plugin", "outboard", "outboard-8", "outboard-1"),
	newSetting(5000, 100, manyTemplates, "stock", "plugin", "outboard", "outboard-8", "outboard-1"),
	newSetting(1000, 0, 1, "stock", "plugin", "outboard", "outboard-8", "outboard-1", "tutorial", "ideal"),
}

var quickPlan = []setting{
	newSetting(5000, 0, 1, "stock", "outboard", "outboard-8", "outboard-1"),
	newSetting(5000, 100, 1, "stock", "outboard", "outboard-8", "outboard-1"),
}

// shortlistPlan compares what the plugin can do in kube-scheduler.
var shortlistPlan = []setting{
	shortlistSetting(0, 1, plain), shortlistSetting(100, 1, plain), shortlistSetting(0, manyTemplates, plain),
	shortlistSetting(100, manyTemplates, plain), shortlistSetting(0, 1, selected), shortlistSetting(0, 1, apart), shortlistSetting(0, 1, restricted),
	shortlistSetting(0, 1, sharing), shortlistSetting(100, 1, sharing), shortlistSetting(0, manyTemplates, sharing),
}

// shortlistPods is how many pods wait for each arm of shortlistPlan, of which some place many in the time between two readings.
const shortlistPods = 3000

func shortlistSetting(percentage, templates int, kind podKind) setting {
	s := newSetting(5000, percentage, templates, "stock", "plugin", "plugin-8", "plugin-64")
	s.pods, s.kind = shortlistPods, kind
	return s
}

// selection replaces parts of a plan. The zero value replaces nothing.
type selection struct {
	nodes       numbers
	pods        int
	arms, kinds string
}

// apply returns the plan, or, if the selection has numbers of nodes, one setting for each of them
// and each kind of pods in the plan.
func (s *selection) apply(plan []setting) ([]setting, error) {
	plan, err := s.ofKinds(plan)
	if err != nil {
		return nil, err
	}
	if len(s.nodes) > 0 {
		all := plan
		plan = nil
		for i, first := range all {
			if slices.ContainsFunc(all[:i], func(other setting) bool { return other.kind == first.kind }) {
				continue
			}
			for _, nodes := range s.nodes {
				first.nodes, first.pods = nodes, defaultPods(first.percentage)
				plan = append(plan, first)
			}
		}
	}
	chosen, err := chooseArms(s.arms)
	if err != nil {
		return nil, err
	}
	for i := range plan {
		if plan[i].nodes < 1 {
			return nil, fmt.Errorf("%s: cannot be measured", plan[i])
		}
		plan[i].pods = cmp.Or(s.pods, plan[i].pods)
		if chosen != nil {
			plan[i].arms = chosen
		}
	}
	return plan, nil
}

// ofKinds returns the settings of the plan with the kinds of pods of the selection; all, if it has none.
func (s *selection) ofKinds(plan []setting) ([]setting, error) {
	if s.kinds == "" {
		return slices.Clone(plan), nil
	}
	var chosen []setting
	for name := range strings.SplitSeq(s.kinds, ",") {
		before := len(chosen)
		for _, setting := range plan {
			if string(setting.kind) == strings.TrimSpace(name) {
				chosen = append(chosen, setting)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("no setting has pods of the kind %q", name)
		}
	}
	return chosen, nil
}

// chooseArms returns the arms with these names; nil if there are none.
func chooseArms(names string) ([]arm, error) {
	switch names {
	case "":
		return nil, nil
	case "all":
		return arms, nil
	}
	var chosen []arm
	for name := range strings.SplitSeq(names, ",") {
		a, err := armNamed(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, a)
	}
	return chosen, nil
}

// numbers is a flag with numbers separated by commas.
type numbers []int

// String implements flag.Value.
func (n *numbers) String() string { return strings.Trim(fmt.Sprint([]int(*n)), "[]") }

// Set implements flag.Value.
func (n *numbers) Set(text string) error {
	*n = nil
	for part := range strings.SplitSeq(text, ",") {
		number, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return fmt.Errorf("%q is not a number", part)
		}
		*n = append(*n, number)
	}
	return nil
}
