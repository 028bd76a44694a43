package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/pending"
)

// Fits is on how many of all nodes a pod fits by all profiles together: on those that each profile
// accepts which places it.
type Fits struct {
	Nodes int `json:"nodes"`
	Fit   int `json:"fit"`
	// Why counts the other nodes by what rejects them. Several policies may reject a node.
	Why string `json:"why,omitempty"`
}

// maxPolicies is how many policies Fits.Why names.
const maxPolicies = 3

// together returns on which nodes the pod fits by all profiles; nil if no profile was asked. By
// profile, says is what it says of the nodes for which kube-scheduler would call, in one order; nil
// if it fails.
func together(profiles []Profile, says map[string][]engine.Explanation, called, all int) *Fits {
	counting := deciding(profiles)
	if len(counting) == 0 {
		return nil
	}
	f, rejected := &Fits{Nodes: all}, map[string]int{"kube-scheduler": all - called}
	for i := range called {
		fits := true
		for _, path := range counting {
			fits = fits && says[path] != nil && says[path][i].Fits
			for j := 0; says[path] != nil && j < len(says[path][i].Policies); j++ {
				if o := &says[path][i].Policies[j]; o.Code != "" {
					rejected[cmp.Or(o.Policy, "Outboard")]++
				}
			}
		}
		if fits {
			f.Fit++
		}
	}
	maps.DeleteFunc(rejected, func(_ string, nodes int) bool { return nodes == 0 })
	by := slices.SortedFunc(maps.Keys(rejected), func(a, b string) int {
		return cmp.Or(cmp.Compare(rejected[b], rejected[a]), cmp.Compare(a, b))
	})
	for i, name := range by[:min(len(by), maxPolicies)] {
		by[i] = fmt.Sprintf("%d rejected by %s", rejected[name], name)
	}
	f.Why = strings.Join(by[:min(len(by), maxPolicies)], ", ")
	return f
}

// deciding returns the profiles whose policies decide about the pod, as if its schedulerName were
// right: those that would not refuse to bind it then, or all if all would.
func deciding(profiles []Profile) (paths []string) {
	accepts := func(p Profile) bool { return !p.Unmanaged && (p.Refused == "" || p.Meant) }
	some := slices.ContainsFunc(profiles, accepts)
	for i := range profiles {
		if p := &profiles[i]; !p.Unmanaged && (accepts(*p) || !some) {
			paths = append(paths, p.Profile)
		}
	}
	return paths
}

// engineOf returns an engine with the policies of all these profiles.
func engineOf(paths []string, engines map[string]*engine.Engine) (*engine.Engine, error) {
	if len(paths) == 1 {
		return engines[paths[0]], nil
	}
	var o engine.Options
	for _, path := range paths {
		for _, p := range engines[path].Policies() {
			p.Name = path + " " + p.Name // unique
			o.Policies = append(o.Policies, p)
		}
	}
	return engine.New(o)
}

// verdict says in one sentence where the pod is, or why it waits.
func (d *Document) verdict() string {
	pod, says := decision.Plain(cmp.Or(d.Kind, "Pod")+" "+d.Pod), ""
	if d.Reason != nil {
		says = strings.TrimSuffix(decision.Plain(d.Reason.Text), ".")
	}
	state, fits := pod+" waits", "fits"
	if d.Tried {
		state, fits = pod+" does not exist", "would fit"
		if d.Kind != "Pod" {
			fits = "each of its pods would fit"
		}
	}
	decided := []string{pending.Gated, pending.NotTried, pending.Failed, pending.OtherScheduler}
	switch r := d.Reason; {
	case !d.Known:
		return pod + " is not known to Outboard."
	case d.Node != "" && r != nil:
		return fmt.Sprintf("%s is on node %s, %s.", pod, d.Node, says)
	case d.Uncalled != "":
		return fmt.Sprintf("%s is on node %s, %s.", pod, d.Node, decision.Plain(d.Uncalled))
	case d.Node != "":
		return fmt.Sprintf("%s is on node %s.", pod, d.Node)
	case r != nil && slices.Contains(decided, r.Code):
		return strings.Replace(state+": "+says+".", "?.", "?", 1)
	case d.Fits == nil:
		return state + ", and no profile is for it."
	case d.Fits.Fit > 0:
		return fmt.Sprintf("%s, and %s on %d of %d nodes now, by Outboard's policies.", state, fits, d.Fits.Fit, d.Fits.Nodes)
	}
	why := cmp.Or(d.Fits.Why, d.failure())
	return strings.Replace(fmt.Sprintf("%s, and %s on 0 of %d nodes: %s.", state, fits, d.Fits.Nodes, why), "?.", "?", 1)
}
