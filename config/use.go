package config

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/config/strictyaml"
	"outboard.dev/outboard/policy"
)

// validateUse checks that there is what policies use.
func (c *Config) validateUse() field.ErrorList {
	var errs field.ErrorList
	for i := range c.Profiles {
		for j, p := range c.Profiles[i].Policies {
			at := field.NewPath("profiles").Index(i).Child("policies").Index(j)
			if _, ok := p.Policy.(policy.Reserver); ok && c.Cluster.None {
				errs = append(errs, field.Forbidden(at.Child("name"), p.Name+" claims what it gives to pods in ledgers of the API server, but cluster is none"))
			}
			if reader, ok := p.Policy.(policy.InputReader); ok {
				errs = append(errs, c.validateSignalUse(at.Child("config"), reader.Inputs().Signals)...)
			}
		}
	}
	return errs
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
	if near := strictyaml.Nearest(name, names); near != "" {
		rule = fmt.Sprintf("did you mean %q?", near)
	}
	return unsupported(at, name, rule)
}
