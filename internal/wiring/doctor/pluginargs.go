package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
)

// pluginArgs checks the arguments of plugins.
func (c *checker) pluginArgs(profile string, all []pluginConfig) {
	first := map[string]bool{}
	for i, p := range all {
		path := field.NewPath(fmt.Sprintf("%s.pluginConfig[%d]", profile, i))
		if first[p.Name] {
			c.refuse("InvalidValue", path.String(), p.Name+" is in the list twice", "", "remove one of the two")
		}
		first[p.Name] = true
		if p.args == nil {
			continue
		}
		for _, err := range c.argErrors(path.Child("args"), p.args) {
			c.refuse("InvalidValue", err.Field, err.ErrorBody(), "", "")
		}
	}
}

// argErrors validates the arguments of a plugin as kube-scheduler does.
func (c *checker) argErrors(path *field.Path, args any) (errs field.ErrorList) {
	switch a := args.(type) {
	case *schedulerv1.DefaultPreemptionArgs:
		percentage, absolute := int32(10), int32(100)
		if a.MinCandidateNodesPercentage != nil {
			percentage = *a.MinCandidateNodesPercentage
		}
		if a.MinCandidateNodesAbsolute != nil {
			absolute = *a.MinCandidateNodesAbsolute
		}
		errs = append(errs, within(path.Child("minCandidateNodesPercentage"), int64(percentage), 0, 100)...)
		errs = append(errs, within(path.Child("minCandidateNodesAbsolute"), int64(absolute), 0, 1<<31)...)
		if percentage == 0 && absolute == 0 {
			errs = append(errs, field.Invalid(path.Child("minCandidateNodesPercentage"), 0, "must not be 0 together with minCandidateNodesAbsolute"))
		}
	case *schedulerv1.DynamicResourcesArgs:
		if a.FilterTimeout != nil && a.FilterTimeout.Duration < 0 {
			errs = append(errs, field.Invalid(path.Child("filterTimeout"), a.FilterTimeout, "must not be negative"))
		}
		if a.BindingTimeout != nil && a.BindingTimeout.Duration < time.Second {
			errs = append(errs, field.Invalid(path.Child("bindingTimeout"), a.BindingTimeout, "must be at least 1s"))
		}
	case *schedulerv1.InterPodAffinityArgs:
		if w := a.HardPodAffinityWeight; w != nil {
			errs = within(path.Child("hardPodAffinityWeight"), int64(*w), 0, 100)
		}
	case *schedulerv1.NodeAffinityArgs:
		errs = affinityErrors(path.Child("addedAffinity"), a.AddedAffinity)
	case *schedulerv1.NodeResourcesBalancedAllocationArgs:
		var names []string
		for i, r := range a.Resources {
			at := path.Child("resources").Index(i)
			if slices.Contains(names, r.Name) {
				errs = append(errs, field.Duplicate(at.Child("name"), r.Name))
			}
			names = append(names, r.Name)
			errs = append(errs, within(at.Child("weight"), cmp.Or(r.Weight, 1), 1, 1)...)
		}
	case *schedulerv1.NodeResourcesFitArgs:
		errs = fitErrors(path, a)
	case *schedulerv1.PodTopologySpreadArgs:
		errs = spreadErrors(path, a)
	case *schedulerv1.VolumeBindingArgs:
		if s := a.BindTimeoutSeconds; s != nil {
			errs = within(path.Child("bindTimeoutSeconds"), *s, 0, 1<<62)
		}
		if a.Shape != nil && !c.since(37) {
			errs = append(errs, field.Forbidden(path.Child("shape"), "needs the feature gate StorageCapacityScoring"))
		} else if len(a.Shape) > 0 {
			errs = append(errs, shapeErrors(path.Child("shape"), a.Shape)...)
		}
	}
	return errs
}

func within(path *field.Path, n, low, high int64) field.ErrorList {
	switch {
	case n >= low && n <= high:
		return nil
	case low == high:
		return field.ErrorList{field.Invalid(path, n, fmt.Sprintf("must be %d", low))}
	case high > 1<<30:
		return field.ErrorList{field.Invalid(path, n, fmt.Sprintf("must be at least %d", low))}
	}
	return field.ErrorList{field.Invalid(path, n, fmt.Sprintf("must be between %d and %d", low, high))}
}

func affinityErrors(path *field.Path, a *corev1.NodeAffinity) (errs field.ErrorList) {
	if a == nil {
		return nil
	}
	var found []error
	if required := a.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		_, err := nodeaffinity.NewNodeSelector(required, field.WithPath(path.Child("requiredDuringSchedulingIgnoredDuringExecution")))
		found = append(found, err)
	}
	if preferred := a.PreferredDuringSchedulingIgnoredDuringExecution; len(preferred) > 0 {
		_, err := nodeaffinity.NewPreferredSchedulingTerms(preferred, field.WithPath(path.Child("preferredDuringSchedulingIgnoredDuringExecution")))
		found = append(found, err)
	}
	for i := 0; i < len(found); i++ {
		err := found[i]
		var several interface{ Errors() []error } // the aggregate of apimachinery
		if errors.As(err, &several) {
			found = append(found, several.Errors()...)
			continue
		}
		var one *field.Error
		if errors.As(err, &one) {
			errs = append(errs, one)
		} else if err != nil {
			errs = append(errs, field.Invalid(path, "", err.Error()))
		}
	}
	return errs
}

func fitErrors(path *field.Path, a *schedulerv1.NodeResourcesFitArgs) (errs field.ErrorList) {
	for i, name := range a.IgnoredResources {
		errs = append(errs, validation.ValidateLabelName(name, path.Child("ignoredResources").Index(i))...)
	}
	for i, group := range a.IgnoredResourceGroups {
		at := path.Child("ignoredResourceGroups").Index(i)
		if strings.Contains(group, "/") {
			errs = append(errs, field.Invalid(at, group, "must not have a /"))
			continue
		}
		errs = append(errs, validation.ValidateLabelName(group, at)...)
	}
	s := a.ScoringStrategy
	if s == nil {
		return errs
	}
	path = path.Child("scoringStrategy")
	types := []schedulerv1.ScoringStrategyType{schedulerv1.LeastAllocated, schedulerv1.MostAllocated, schedulerv1.RequestedToCapacityRatio}
	if !slices.Contains(types, s.Type) {
		errs = append(errs, field.NotSupported(path.Child("type"), s.Type, types))
	}
	for i, r := range s.Resources {
		errs = append(errs, within(path.Child("resources").Index(i).Child("weight"), cmp.Or(r.Weight, 1), 1, 100)...)
	}
	ratio := path.Child("requestedToCapacityRatio")
	switch {
	case s.Type != schedulerv1.RequestedToCapacityRatio && s.RequestedToCapacityRatio != nil:
		errs = append(errs, field.Forbidden(ratio, "goes with type: RequestedToCapacityRatio only"))
	case s.Type == schedulerv1.RequestedToCapacityRatio && s.RequestedToCapacityRatio == nil:
		errs = append(errs, field.Required(ratio, "goes with type: RequestedToCapacityRatio"))
	case s.Type == schedulerv1.RequestedToCapacityRatio:
		errs = append(errs, shapeErrors(ratio.Child("shape"), s.RequestedToCapacityRatio.Shape)...)
	}
	return errs
}

func shapeErrors(path *field.Path, shape []schedulerv1.UtilizationShapePoint) (errs field.ErrorList) {
	if len(shape) == 0 {
		return field.ErrorList{field.Required(path, "must have a point")}
	}
	for i, p := range shape {
		if i > 0 && p.Utilization <= shape[i-1].Utilization {
			errs = append(errs, field.Invalid(path.Index(i).Child("utilization"), p.Utilization, "must be more than that of the point before"))
		}
		errs = append(errs, within(path.Index(i).Child("utilization"), int64(p.Utilization), 0, 100)...)
		errs = append(errs, within(path.Index(i).Child("score"), int64(p.Score), 0, 10)...)
	}
	return errs
}

func spreadErrors(path *field.Path, a *schedulerv1.PodTopologySpreadArgs) (errs field.ErrorList) {
	types := []schedulerv1.PodTopologySpreadConstraintsDefaulting{schedulerv1.SystemDefaulting, schedulerv1.ListDefaulting}
	kind := cmp.Or(a.DefaultingType, schedulerv1.SystemDefaulting)
	if !slices.Contains(types, kind) {
		errs = append(errs, field.NotSupported(path.Child("defaultingType"), kind, types))
	} else if kind == schedulerv1.SystemDefaulting && len(a.DefaultConstraints) > 0 {
		errs = append(errs, field.Invalid(path.Child("defaultingType"), kind, "must be List, because there are defaultConstraints"))
	}
	for i, k := range a.DefaultConstraints {
		at := path.Child("defaultConstraints").Index(i)
		errs = append(errs, within(at.Child("maxSkew"), int64(k.MaxSkew), 1, 1<<31)...)
		if k.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), ""))
		} else {
			errs = append(errs, validation.ValidateLabelName(k.TopologyKey, at.Child("topologyKey"))...)
		}
		if actions := []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}; !slices.Contains(actions, k.WhenUnsatisfiable) {
			errs = append(errs, field.NotSupported(at.Child("whenUnsatisfiable"), k.WhenUnsatisfiable, actions))
		}
		if k.LabelSelector != nil {
			errs = append(errs, field.Forbidden(at.Child("labelSelector"), "kube-scheduler derives it from each pod"))
		}
		for _, other := range a.DefaultConstraints[:i] {
			if other.TopologyKey == k.TopologyKey && other.WhenUnsatisfiable == k.WhenUnsatisfiable {
				errs = append(errs, field.Duplicate(at, k.TopologyKey))
			}
		}
	}
	return errs
}
