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
	// service has a Service select the pods: then kube-scheduler spreads them over nodes and zones, for which it reads all nodes and pods.
	service bool
	arms    []arm
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
	if s.service {
		templates += ", selected by a Service"
	}
	return fmt.Sprintf("%d nodes, %s, %s", s.nodes, sampling, templates)
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
	s := setting{nodes: nodes, percentage: percentage, templates: templates, pods: defaultPods(percentage)}
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

// candidatesPlan compares what the plugin can do in kube-scheduler.
var candidatesPlan = []setting{
	candidatesSetting(0, 1, false), candidatesSetting(100, 1, false), candidatesSetting(0, manyTemplates, false),
	candidatesSetting(100, manyTemplates, false), candidatesSetting(0, 1, true),
}

// candidatesPods is how many pods wait for each arm of candidatesPlan, of which some place many in the time between two readings.
const candidatesPods = 3000

func candidatesSetting(percentage, templates int, service bool) setting {
	s := newSetting(5000, percentage, templates, "stock", "plugin", "plugin-8", "plugin-64")
	s.pods, s.service = candidatesPods, service
	return s
}

// selection replaces parts of a plan. The zero value replaces nothing.
type selection struct {
	nodes, percentages, templates numbers
	pods                          int
	arms                          string
}

// apply returns the plan, or, if the selection has settings, one setting for each combination.
func (s *selection) apply(plan []setting) ([]setting, error) {
	plan = slices.Clone(plan)
	if len(s.nodes)+len(s.percentages)+len(s.templates) > 0 {
		first := plan[0]
		plan = nil
		for _, nodes := range s.nodes.or(first.nodes) {
			for _, percentage := range s.percentages.or(first.percentage) {
				for _, templates := range s.templates.or(first.templates) {
					plan = append(plan, setting{nodes: nodes, percentage: percentage, templates: templates, pods: defaultPods(percentage), arms: first.arms})
				}
			}
		}
	}
	chosen, err := chooseArms(s.arms)
	if err != nil {
		return nil, err
	}
	for i := range plan {
		if plan[i].nodes < 1 || plan[i].templates < 1 || plan[i].percentage < 0 || plan[i].percentage > 100 {
			return nil, fmt.Errorf("%s: cannot be measured", plan[i])
		}
		plan[i].pods = cmp.Or(s.pods, plan[i].pods)
		if chosen != nil {
			plan[i].arms = chosen
		}
	}
	return plan, nil
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

func (n numbers) or(number int) numbers {
	if len(n) == 0 {
		return numbers{number}
	}
	return n
}
