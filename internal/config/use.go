package config

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
)

// validateUse checks that what policies use exists.
func (c *Config) validateUse() field.ErrorList {
	var errs field.ErrorList
	for i := range c.Profiles {
		for j, p := range c.Profiles[i].Policies {
			at := field.NewPath("profiles").Index(i).Child("policies").Index(j)
			if _, ok := p.Policy.(policy.Reserver); ok {
				errs = append(errs, c.validateReserver(at, &c.Profiles[i], &p)...)
			}
			errs = append(errs, c.validateSignalUse(at.Child("config"), p.Inputs().Signals)...)
		}
	}
	return errs
}

// completeManagedResources adds what the policies of each profile allocate to its managedResources,
// except to [].
func (c *Config) completeManagedResources() field.ErrorList {
	var errs field.ErrorList
	for i := range c.Profiles {
		p := &c.Profiles[i]
		every := p.ManagedResources != nil && len(p.ManagedResources) == 0
		if p.ManagedResources == nil {
			p.ManagedResources = []ManagedResource{}
			every = slices.ContainsFunc(p.Policies, func(q Policy) bool { return q.Inputs().AnyPod || q.allocatesUnnamed() })
		}
		if every {
			continue
		}
		for _, r := range p.AllocatedResources() {
			if p.lists(r.Name) {
				continue
			}
			other := slices.IndexFunc(c.Profiles, func(o Profile) bool { return o.lists(r.Name) })
			if other >= 0 {
				errs = append(errs, field.Required(field.NewPath("profiles").Index(i).Child("managedResources"), fmt.Sprintf(
					"%s allocates %s, which is in the managedResources of profiles[%d], too: give the profile the resources that are its own, or [] for every pod", r.Policy, r.Name, other)))
				break
			}
			p.ManagedResources = append(p.ManagedResources, ManagedResource{Name: string(r.Name)})
		}
	}
	return errs
}

// completeShortlists sets the default of Shortlist. With it, another profile that rejects nodes may
// reject all of the list, and the pod would never get to the others.
func (c *Config) completeShortlists() {
	for i := range c.Profiles {
		p := &c.Profiles[i]
		other := func(o Profile) bool { return o.Path != p.Path && len(o.Filters()) > 0 }
		packs := func(q Policy) bool {
			_, allocates := q.Policy.(policy.Reserver)
			return allocates && q.Weight > 0 && !q.Inputs().FilterOnly
		}
		if p.Shortlist == nil && p.Verb == nil && slices.ContainsFunc(p.Policies, packs) && !slices.ContainsFunc(c.Profiles, other) {
			p.Shortlist = new(DefaultShortlist)
		}
	}
}

// allocatesUnnamed reports whether the policy allocates, and pods request that without a resource.
func (p *Policy) allocatesUnnamed() bool {
	_, allocates := p.Policy.(policy.Reserver)
	return allocates && len(p.Inputs().Resources) == 0
}

func (p *Profile) lists(resource corev1.ResourceName) bool {
	return slices.ContainsFunc(p.ManagedResources, func(m ManagedResource) bool { return m.Name == string(resource) })
}

// validateReserver checks a policy that allocates resources.
func (c *Config) validateReserver(at *field.Path, profile *Profile, p *Policy) field.ErrorList {
	var errs field.ErrorList
	if !c.ClientConnection.Enabled {
		errs = append(errs, field.Forbidden(at.Child("type"), p.Type+" allocates resources in ledgers of the API server, but clientConnection.enabled is false"))
	}
	if p.FailurePolicy == policy.Ignore && profile.OnlyVerb() != decision.Prioritize {
		errs = append(errs, field.Invalid(at.Child("failurePolicy"), string(p.FailurePolicy), "must be Fail, because "+p.Type+" allocates resources: without it, filter passes nodes to which bind cannot bind the pod"))
	}
	return errs
}

// warnUnused warns about policies that have no effect.
func (c *Config) warnUnused() field.ErrorList {
	var warnings field.ErrorList
	for i := range c.Profiles {
		for j := range c.Profiles[i].Policies {
			q := &c.Profiles[i].Policies[j]
			if q.Weight == 0 && q.Inputs().ScoreOnly {
				at := field.NewPath("profiles").Index(i).Child("policies").Index(j).Child("weight")
				warnings = append(warnings, field.Invalid(at, q.Weight, q.Name+" has no effect: it only scores, and without a weight its scores do not count"))
			}
		}
	}
	return warnings
}

// warnManaged warns about policies in profiles with managedResources that are for pods that request
// none of these.
func (c *Config) warnManaged() field.ErrorList {
	var warnings field.ErrorList
	for i := range c.Profiles {
		p := &c.Profiles[i]
		for j := 0; j < len(p.Policies) && len(p.ManagedResources) > 0; j++ {
			q, text := &p.Policies[j], ""
			switch {
			case q.Inputs().Devices:
				text = "%s has no effect for a pod that has ResourceClaims and requests none of managedResources, because the profile is not for the pod: put it into a profile of its own, without managedResources"
			case q.allocatesUnnamed():
				text = "%s allocates no resource, so pods request from it in another way, such as an annotation: kube-scheduler does not call for a pod that requests none of managedResources, and binds it without an allocation. Remove managedResources, or put %[1]s into a profile without"
			default:
				continue
			}
			at := field.NewPath("profiles").Index(i).Child("managedResources")
			warnings = append(warnings, field.Invalid(at, p.ManagedResources[0].Name, fmt.Sprintf(text, q.Name)))
		}
	}
	return warnings
}

// warnPolicies returns the warnings of the policies themselves.
func (c *Config) warnPolicies() field.ErrorList {
	var warnings field.ErrorList
	for i := range c.Profiles {
		for j, q := range c.Profiles[i].Policies {
			warner, ok := q.Policy.(policy.Warner)
			if !ok {
				continue
			}
			at := field.NewPath("profiles").Index(i).Child("policies").Index(j).Child("config").String()
			for _, w := range warner.Warnings() {
				w.Field = at + "." + w.Field
				warnings = append(warnings, w)
			}
		}
	}
	return warnings
}

// warnUncounted warns about resources that neither kube-scheduler nor a policy counts.
func (c *Config) warnUncounted() field.ErrorList {
	var warnings field.ErrorList
	for i, p := range c.Profiles {
		counted := p.AllocatedResources()
		for j, m := range p.ManagedResources {
			if m.IgnoredByScheduler && !slices.ContainsFunc(counted, func(r AllocatedResource) bool { return string(r.Name) == m.Name }) {
				at := field.NewPath("profiles").Index(i).Child("managedResources").Index(j).Child("ignoredByScheduler")
				warnings = append(warnings, field.Invalid(at, true, "nothing counts "+m.Name+": kube-scheduler ignores it, and no policy of the profile allocates it"))
			}
		}
	}
	return warnings
}

// warnUnreported warns about resources that kube-scheduler counts, although probably no node
// reports them. Another policy that allocates such a resource means that nodes report it, as for a
// license of each device.
func (c *Config) warnUnreported() field.ErrorList {
	var warnings field.ErrorList
	ignored := c.IgnoredByScheduler()
	for i := range c.Profiles {
		p := &c.Profiles[i]
		allocated := p.AllocatedResources()
		for j := range p.Policies {
			for _, name := range p.Policies[j].Inputs().Unreported {
				counted := func(r AllocatedResource) bool { return r.Name == name && r.Policy != p.Policies[j].Name }
				if slices.Contains(ignored, name) || slices.ContainsFunc(allocated, counted) {
					continue
				}
				why := fmt.Sprintf("%s counts %s for the whole cluster, but kube-scheduler counts it for each node, and rejects nodes that do not report it", p.Policies[j].Name, name)
				at := field.NewPath("profiles").Index(i).Child("managedResources")
				if k := slices.IndexFunc(p.ManagedResources, func(m ManagedResource) bool { return m.Name == string(name) }); k >= 0 {
					warnings = append(warnings, field.Invalid(at.Index(k).Child("ignoredByScheduler"), false, "should be true: "+why))
				} else {
					warnings = append(warnings, field.Required(at, fmt.Sprintf("should list %s with ignoredByScheduler: true: %s", name, why)))
				}
			}
		}
	}
	return warnings
}

// AllocatedResource is a resource that a policy allocates to pods.
type AllocatedResource struct {
	Name corev1.ResourceName
	// Policy is the name of the policy.
	Policy string
}

// AllocatedResources returns the resources that the policies of the profile allocate, in the order
// of the policies.
func (p *Profile) AllocatedResources() []AllocatedResource {
	var all []AllocatedResource
	for i := range p.Policies {
		q := &p.Policies[i]
		for _, name := range q.Inputs().Resources {
			if name != "" { // another error says that it is missing
				all = append(all, AllocatedResource{name, q.Name})
			}
		}
	}
	return all
}

// validateSignalUse checks that the signals that a policy names exist.
func (c *Config) validateSignalUse(at *field.Path, uses []policy.Signal) field.ErrorList {
	var errs field.ErrorList
	var names []string
	for i := range c.Signals {
		names = append(names, c.Signals[i].Name)
	}
	for _, use := range uses {
		known := slices.Index(names, use.Name)
		where := field.NewPath(at.String() + "." + use.Field)
		switch {
		case use.Name == "": // another error says that it is missing
		case known < 0:
			errs = append(errs, unknownSignal(where, use.Name, names))
		case use.About != "" && c.Signals[known].About != "" && use.About != c.Signals[known].About:
			errs = append(errs, field.Invalid(where, use.Name, fmt.Sprintf("must be about %s, but signals[%d] is about %s", use.About, known, c.Signals[known].About)))
		}
	}
	return errs
}

func unknownSignal(at *field.Path, name string, names []string) *field.Error {
	rule := "there are no signals"
	if len(names) > 0 {
		rule = "known signals: " + strings.Join(slices.Sorted(slices.Values(names)), ", ")
	}
	if near := fields.Nearest(name, names); near != "" {
		rule = fmt.Sprintf("did you mean %q?", near)
	}
	return unsupported(at, name, rule)
}
