package stage

import (
	"fmt"
	"regexp"
	"strings"
)

// Result is what the README of an example says about a pod.
type Result struct {
	// Node is the pod's node; "any" is any node, and "waits" none.
	Node string
	// Reason is a part of kube-scheduler's message if the pod waits.
	Reason string
}

// resultsHeader begins the table of results in a README.
const resultsHeader = "| pod | node | why |\n|---|---|---|\n"

var (
	resultsRow = regexp.MustCompile("^\\| `([^`]+)` \\| `?([^`|]+?)`? \\| (.*) \\|$")
	quoted     = regexp.MustCompile("`([^`]+)`")
)

// ReadResults returns the rows of the table of results in a README, by pod. The reason of a pod that waits is the first code in its
// last cell.
func ReadResults(readme string) (map[string]Result, error) {
	_, table, found := strings.Cut(readme, resultsHeader)
	if !found {
		return nil, fmt.Errorf("the README has no table %q", resultsHeader)
	}
	results := map[string]Result{}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := resultsRow.FindStringSubmatch(strings.TrimSpace(line))
		if cells == nil {
			return nil, fmt.Errorf("not a row of results: %q", line)
		}
		r := Result{Node: cells[2]}
		if r.Node == "waits" {
			reason := quoted.FindStringSubmatch(cells[3])
			if reason == nil {
				return nil, fmt.Errorf("the README does not say why %s waits: %q", cells[1], line)
			}
			r.Reason = reason[1]
		}
		results[cells[1]] = r
	}
	return results, nil
}

// Check returns an error unless the pod is where the README says, or waits for that reason.
func (r Result) Check(p Outcome) error {
	node := p.Pod.Spec.NodeName
	switch {
	case r.Node == "waits" && node == "" && strings.Contains(p.Waiting, r.Reason):
	case r.Node == "any" && node != "":
	case r.Node == node && node != "":
	default:
		return fmt.Errorf("pod %s: node %q, waiting because of %q; the README says: %s %s", p.Pod.Name, node, p.Waiting, r.Node, r.Reason)
	}
	return nil
}
