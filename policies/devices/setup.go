package devices

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
)

// Config is the configuration of the policy.
type Config struct {
	// Resource is the extended resource that pods request. Required. For several, list the policy
	// several times, with different names.
	Resource string `json:"resource" required:"-"`
	// CapacityFrom is where a node declares how much of the resource it has. Default:
	// status.allocatable. Not for Named units.
	CapacityFrom *fields.From `json:"capacityFrom"`
	// Units says how units are identified: only counted (None, the default), Numbered from 0, or
	// Named by UnitsFrom.
	Units Units `json:"units" values:"None,Numbered,Named"`
	// UnitsFrom is where a node declares the names of its units: "fpga0,fpga1", or with shares
	// "fpga0=4,fpga1=2"; in a label "fpga0_fpga1". For Named units.
	UnitsFrom *fields.From `json:"unitsFrom"`
	// AllocationMode says what a pod that requests n gets: n units with WholeUnits (the default),
	// or n shares of one unit.
	AllocationMode AllocationMode `json:"allocationMode" values:"WholeUnits,Shares"`
	// SharesPerUnit is how many shares a unit has if its node does not report it.
	SharesPerUnit int32 `json:"sharesPerUnit" limits:"1.."`
	// ResultAnnotation is the key of the annotation with the units of a pod. Default: outboard.dev/
	// and the name of the resource with a dot instead of its slash.
	ResultAnnotation string `json:"resultAnnotation" form:"key"`
	// GroupsFrom is where a node declares the groups of its units: "fpga0,fpga1;fpga2,fpga3". For
	// WholeUnits only. Default: none.
	GroupsFrom *GroupsFrom `json:"groupsFrom"`
	// SameGroup says whether the units of one pod must or should be in one group. Default
	// Preferred.
	SameGroup SameGroup `json:"sameGroup" values:"Required,Preferred"`
	// ScoringStrategy says which nodes, groups and shared units are better.
	ScoringStrategy ScoringStrategy `json:"scoringStrategy"`
}

// Units says how a node's units are identified.
type Units string

const (
	// None: not at all; only their number counts.
	None Units = "None"
	// Numbered: by numbers from 0.
	Numbered Units = "Numbered"
	// Named: by the names in Config.UnitsFrom.
	Named Units = "Named"
)

// AllocationMode is what is allocated to a pod that requests n of the resource.
type AllocationMode string

const (
	// WholeUnits are n units that nobody else has.
	WholeUnits AllocationMode = "WholeUnits"
	// Shares are n shares of one unit.
	Shares AllocationMode = "Shares"
)

// SameGroup is whether the units of one pod must be in one group.
type SameGroup string

const (
	// Required says that they must be.
	Required SameGroup = "Required"
	// Preferred says that they need not, but should be.
	Preferred SameGroup = "Preferred"
)

// ScoringStrategy is which nodes are better, and on a node which units and groups.
type ScoringStrategy struct {
	// Type is BinPack (the default), which prefers those with less free, or Spread.
	Type policy.ScoringStrategyType `json:"type" values:"BinPack,Spread"`
}

// GroupsFrom is where a node declares the groups of its units. A label cannot contain them.
type GroupsFrom struct {
	// Annotation is the key of an annotation of the node.
	Annotation string `json:"annotation" required:"names the annotation" form:"key"`
}

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("Devices", Defaults, New) }

// Defaults is the configuration of a policy of which only the resource is missing.
func Defaults() Config {
	return Config{Units: None, AllocationMode: WholeUnits, SharesPerUnit: 1, SameGroup: Preferred, ScoringStrategy: ScoringStrategy{Type: policy.BinPack}}
}

// New returns the policy, or an aggregate of field.Error values.
func New(config Config) (policy.Policy, error) {
	if errs := config.validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return newDevices(config), nil
}

// annotation returns the key of the annotation with a pod's units; "" if there is none.
func (c *Config) annotation() string {
	switch {
	case c.Units == None:
		return ""
	case c.ResultAnnotation != "":
		return c.ResultAnnotation
	}
	return "outboard.dev/" + strings.ReplaceAll(c.Resource, "/", ".")
}

func (c *Config) validate() field.ErrorList {
	errs := fields.Check(nil, c)
	errs = append(errs, fields.ExtendedResource(field.NewPath("resource"), c.Resource)...)
	if len(errs) == 0 && c.ResultAnnotation == "" && len(fields.Key(nil, c.annotation())) > 0 {
		errs = append(errs, field.Required(field.NewPath("resultAnnotation"), "the resource's name is too long for a default key"))
	}
	return append(errs, c.validateTogether()...)
}

// validateTogether finds fields that mean nothing beside others.
func (c *Config) validateTogether() field.ErrorList {
	var errs field.ErrorList
	forbid := func(when bool, name, message string) {
		if when {
			errs = append(errs, field.Forbidden(field.NewPath(name), message))
		}
	}
	if c.Units == Named && c.UnitsFrom == nil {
		errs = append(errs, field.Required(field.NewPath("unitsFrom"), "says where nodes name their units"))
	}
	forbid(c.Units != Named && c.UnitsFrom != nil, "unitsFrom", "needs units: Named")
	forbid(c.Units == Named && c.CapacityFrom != nil, "capacityFrom", "nodes that name their units report their number by the names")
	forbid(c.Units == None && c.ResultAnnotation != "", "resultAnnotation", "needs units: Numbered or Named")
	forbid(c.Units == None && c.AllocationMode == Shares, "allocationMode", "Shares needs units: Numbered or Named")
	forbid(c.AllocationMode != Shares && c.SharesPerUnit > 1, "sharesPerUnit", "needs allocationMode: Shares")
	forbid(c.Units == None && c.GroupsFrom != nil, "groupsFrom", "needs units: Numbered or Named")
	forbid(c.AllocationMode == Shares && c.GroupsFrom != nil, "groupsFrom", "a pod's shares are always of one unit")
	forbid(c.GroupsFrom == nil && c.SameGroup == Required, "sameGroup", "needs groupsFrom, which says which units are a group")
	return errs
}
