package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/pending"
)

// Fits is on how many nodes a pod fits by all profiles together: every profile that places the pod must accept the same node.
type Fits struct {
	// Nodes is how many nodes the cluster has, and Fit on how many the pod fits.
	Nodes int `json:"nodes"`
	Fit   int `json:"fit"`
	// Excluded is how many nodes kube-scheduler excludes before it calls.
	Excluded int `json:"excluded"`
	// Rejected is how many of the others each policy rejects, most first. Several policies may reject a node.
	Rejected []Rejected `json:"rejected,omitempty"`
}

// Rejected is how many nodes a policy rejects.
type Rejected struct {
	Profile string `json:"profile"`
	Policy  string `json:"policy"`
	Nodes   int    `json:"nodes"`
}

// maxPolicies is how many policies a verdict names.
const maxPolicies = 3

// why says why the pod fits on none of the nodes.
func (f *Fits) why() string {
	var why []string
	if f.Excluded > 0 {
		why = append(why, fmt.Sprintf("%d excluded by kube-scheduler", f.Excluded))
	}
	for _, r := range f.Rejected[:min(len(f.Rejected), maxPolicies)] {
		why = append(why, fmt.Sprintf("%d rejected by %s", r.Nodes, cmp.Or(r.Policy, "Outboard")))
	}
	if len(why) == 0 {
		return ""
	}
	return ": " + strings.Join(why, ", ")
}

// nodesOf is what one profile says of the nodes for which kube-scheduler would call, in their order.
type nodesOf struct {
	accepted []bool // nil: none, because of an error
	rejected []Rejected
}

func nodesBy(profile string, all []engine.Explanation) (o nodesOf) {
	for i := range all {
		o.accepted = append(o.accepted, all[i].Fits)
		for _, p := range all[i].Policies {
			if p.Code == "" {
				continue
			}
			at := slices.IndexFunc(o.rejected, func(r Rejected) bool { return r.Policy == p.Policy })
			if at < 0 {
				at = len(o.rejected)
				o.rejected = append(o.rejected, Rejected{Profile: profile, Policy: p.Policy})
			}
			o.rejected[at].Nodes++
		}
	}
	return o
}

// together returns on which nodes the pod fits by all profiles, of which there are called nodes of all in the cluster; nil if no profile was asked.
func together(profiles []Profile, by map[string]nodesOf, called, all int) *Fits {
	counting := deciding(profiles)
	if len(counting) == 0 {
		return nil
	}
	f := &Fits{Nodes: all, Excluded: all - called}
	for i := range called {
		if !slices.ContainsFunc(counting, func(path string) bool { return by[path].accepted == nil || !by[path].accepted[i] }) {
			f.Fit++
		}
	}
	for _, path := range counting {
		f.Rejected = append(f.Rejected, by[path].rejected...)
	}
	slices.SortStableFunc(f.Rejected, func(a, b Rejected) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return f
}

// deciding returns the profiles whose policies decide about the pod: those that would not refuse to bind it, or all if all would.
func deciding(profiles []Profile) (paths []string) {
	for _, refused := range []bool{false, true} {
		for i := range profiles {
			if p := &profiles[i]; !p.Unmanaged && (refused || p.Refused == "") {
				paths = append(paths, p.Profile)
			}
		}
		if len(paths) > 0 {
			break
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
	pod, says := "Pod "+decision.Plain(d.Pod), ""
	if d.Reason != nil {
		says = strings.TrimSuffix(decision.Plain(d.Reason.Text), ".")
	}
	state, fits := " waits", "fits"
	if d.Tried {
		state, fits = " does not exist", "would fit"
	}
	switch r := d.Reason; {
	case !d.Known:
		return pod + " is not known to Outboard."
	case d.Node != "" && r != nil:
		return fmt.Sprintf("%s is on node %s, %s.", pod, d.Node, says)
	case d.Node != "":
		return fmt.Sprintf("%s is on node %s.", pod, d.Node)
	case r != nil && slices.Contains([]string{pending.Gated, pending.NotTried, pending.Failed, pending.OtherScheduler}, r.Code):
		return strings.Replace(pod+state+": "+says+".", "?.", "?", 1)
	case d.Fits == nil:
		return pod + state + ", and no profile is for it."
	case d.Fits.Fit > 0:
		return fmt.Sprintf("%s%s, and %s on %d of %d nodes now, by Outboard's policies.", pod, state, fits, d.Fits.Fit, d.Fits.Nodes)
	}
	return fmt.Sprintf("%s%s, and %s on 0 of %d nodes%s.", pod, state, fits, d.Fits.Nodes, d.Fits.why())
}
