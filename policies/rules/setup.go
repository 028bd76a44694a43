package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
)

// Config is the configuration of the policy. At least one rule must be given.
type Config struct {
	// WhenStale says what happens to a node if a filter reads a missing or stale signal: the rule
	// is ignored (Neutral, the default), or the node is rejected.
	WhenStale policy.UnknownAction `json:"whenStale" values:"Neutral,Reject"`
	// Filters are rules that say which nodes fit.
	Filters []FilterRule `json:"filters"`
	// Scores are rules that say which nodes are better.
	Scores []ScoreRule `json:"scores"`
}

// FilterRule says whether a pod may run on a node.
type FilterRule struct {
	// Name is a DNS label such as no-spot, and unique in the policy. It is the code of the reason.
	Name string `json:"name" required:"identifies the rule in reasons and explanations" form:"name"`
	// MatchConditions say which pods the rule applies to: those for which all are true, at most 64.
	// Default: all pods.
	MatchConditions []MatchCondition `json:"matchConditions"`
	// Expression is true for nodes on which the pod may run. Required.
	Expression string `json:"expression" required:"-"`
	// Message is the event text: one line of at most 200 bytes, without numbers, because events
	// count equal messages. Default: "node(s) do not satisfy rule" and the name.
	Message string `json:"message"`
	// Resolvable says whether the pod may fit when other pods are gone, so that preemption can
	// help. Default: if the expression reads usage.
	Resolvable *bool `json:"resolvable"`
	// FailurePolicy says what happens if an evaluation fails: Fail (the default) rejects the node,
	// or every node if it is one of MatchConditions; Ignore ignores the rule.
	FailurePolicy *policy.FailurePolicy `json:"failurePolicy" values:"Fail,Ignore"`
}

// ScoreRule says how good a node is.
type ScoreRule struct {
	// Name is a DNS label such as new-nodes, and unique in the policy.
	Name string `json:"name" required:"identifies the rule in reasons and explanations" form:"name"`
	// MatchConditions say which pods the rule applies to, as in a filter rule.
	MatchConditions []MatchCondition `json:"matchConditions"`
	// Expression is a number: 0 (and less) is worst, 100 (and more) best. Required.
	Expression string `json:"expression" required:"-"`
	// Weight is the weight of the rule among the score rules, 0..100. Default 1.
	Weight *int32 `json:"weight" limits:"0..100"`
	// FailurePolicy says what happens if one of MatchConditions fails: Fail (the default) rejects
	// every node, and Ignore ignores the rule.
	FailurePolicy *policy.FailurePolicy `json:"failurePolicy" values:"Fail,Ignore"`
}

// MatchCondition is a condition on pods, as in Kubernetes' admission policies.
type MatchCondition struct {
	// Name is a DNS label, and unique in the rule.
	Name string `json:"name" required:"identifies the condition in explanations" form:"name"`
	// Expression is true for the pods to which the rule applies. It reads only pod and podRequests.
	// Required.
	Expression string `json:"expression" required:"-"`
}

const (
	// maxRules bounds the rules of one policy.
	maxRules = 100
	// maxConditions bounds the match conditions of one rule, as in Kubernetes.
	maxConditions = 64
	// maxMessage bounds a message, in bytes.
	maxMessage = 200
)

var loneNumber = regexp.MustCompile(`(^|[^A-Za-z0-9])[0-9]`)

// Type is the policy as a configuration file knows it.
func Type() policy.Type { return policy.TypeOf("Rules", Defaults, New) }

// Defaults is the configuration of a policy without rules.
func Defaults() Config { return Config{WhenStale: policy.Neutral} }

// New returns the policy, or an aggregate of field.Error values.
func New(config Config) (policy.Policy, error) {
	c, err := newCompiler()
	if err != nil {
		return nil, err
	}
	errs := config.validate()
	if len(config.Filters)+len(config.Scores) > maxRules {
		return nil, errs.ToAggregate()
	}
	p := &rules{whenStale: config.WhenStale}
	for i := range config.Filters {
		path := field.NewPath("filters").Index(i)
		errs = append(errs, p.addFilter(c, path, &config.Filters[i])...)
	}
	for i := range config.Scores {
		path := field.NewPath("scores").Index(i)
		errs = append(errs, p.addScore(c, path, &config.Scores[i])...)
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	if len(config.Scores) > 0 && len(p.scores) == 0 {
		at := field.NewPath("scores").Index(0).Child("weight")
		p.warnings = append(p.warnings,
			field.Invalid(at, 0, "no score has an effect: each has the weight 0"))
	}
	resolvable := func(r *rule) bool { return !r.unresolvable }
	first := slices.DeleteFunc(slices.Clone(p.filters), resolvable)
	p.filters = append(first, slices.DeleteFunc(p.filters, func(r *rule) bool { return r.unresolvable })...)
	p.arrange(c)
	return p, nil
}

func (p *rules) addFilter(c *compiler, path *field.Path, f *FilterRule) field.ErrorList {
	r, errs := p.newRule(c, path, f.Name, f.MatchConditions, f.Expression, f.FailurePolicy,
		types.BoolType)
	if len(errs) > 0 {
		return errs
	}
	r.reason = &policy.Reason{Code: f.Name, Text: f.Message}
	if f.Message == "" {
		r.reason.Text = "node(s) do not satisfy rule " + f.Name
	}
	r.costExceeded = &policy.Reason{
		Code: f.Name + costExceededSuffix,
		Text: "node(s) for which rule " + f.Name + " exceeds its cost limit",
	}
	r.unresolvable = r.expression.deps&onUsage == 0
	if f.Resolvable != nil {
		r.unresolvable = !*f.Resolvable
	}
	p.filters = append(p.filters, r)
	p.warnings = append(p.warnings, r.warnLookups()...)
	return nil
}

func (p *rules) addScore(c *compiler, path *field.Path, s *ScoreRule) field.ErrorList {
	r, errs := p.newRule(c, path, s.Name, s.MatchConditions, s.Expression, s.FailurePolicy,
		types.DoubleType, types.IntType, types.UintType)
	if len(errs) > 0 {
		return errs
	}
	r.weight = 1
	if s.Weight != nil {
		r.weight = float64(*s.Weight)
	}
	if r.weight > 0 {
		p.scores = append(p.scores, r)
		p.warnings = append(p.warnings, r.warnLookups()...)
	}
	return nil
}

func (p *rules) newRule(
	c *compiler, path *field.Path, name string, conditions []MatchCondition, text string,
	failurePolicy *policy.FailurePolicy, results ...*types.Type,
) (*rule, field.ErrorList) {
	r := &rule{name: name, failurePolicy: policy.Fail}
	if failurePolicy != nil {
		r.failurePolicy = *failurePolicy
	}
	var errs field.ErrorList
	for i, m := range conditions[:min(len(conditions), maxConditions)] {
		at := path.Child("matchConditions").Index(i).Child("expression")
		e, more := c.compile(at, m.Expression, onPod, types.BoolType)
		if errs = append(errs, more...); len(more) == 0 {
			e.name = m.Name
			r.conditions = append(r.conditions, e)
		}
	}
	var more field.ErrorList
	r.expression, more = c.compile(path.Child("expression"), text, ^deps(0), results...)
	if errs = append(errs, more...); len(errs) > 0 {
		return nil, errs
	}
	for _, read := range r.expression.reads {
		signal := policy.Signal{
			Field: path.Child("expression").String(), Name: read.signal, About: policy.AboutNodes,
		}
		if read.keyed {
			signal.About = policy.AboutKeys
			p.keyed = append(p.keyed, read.signal)
		}
		if !slices.Contains(p.reads, signal) {
			p.reads = append(p.reads, signal)
		}
	}
	return r, nil
}

// warnLookups returns a warning for each label without which an expression of the rule is an error.
// It returns none about a label for which the rule tests, or of which failurePolicy says what
// happens.
func (r *rule) warnLookups() (warnings field.ErrorList) {
	if r.failurePolicy == policy.Ignore {
		return nil
	}
	all := append(slices.Clip(r.conditions), r.expression)
	// The labels for which the rule tests, or of which a warning has been given.
	known := map[[3]string]bool{}
	for _, e := range all {
		for _, l := range e.lookups {
			known[l.label()] = known[l.label()] || l.want != direct
		}
	}
	if r.reason == nil { // a score, for which an error is no failure
		all = r.conditions
	}
	for _, e := range all {
		for _, l := range e.lookups {
			if known[l.label()] {
				continue
			}
			known[l.label()] = true
			result := "the rule rejects the node"
			if e != r.expression {
				result = "the request fails"
			} else if l.object == podVar {
				result = "the rule rejects every node"
			}
			warnings = append(warnings, invalid(e.path, e.text, l.at, fmt.Sprintf(
				"a %s without %q in %s is an error, and %s: "+
					"write %[1]s.metadata.?%[3]s[?%[2]q].orValue(\"\")",
				l.object, l.key, l.field, result)))
		}
	}
	return warnings
}

func (c *Config) validate() field.ErrorList {
	errs := fields.Check(nil, c)
	filters, scores := field.NewPath("filters"), field.NewPath("scores")
	switch n := len(c.Filters) + len(c.Scores); {
	case n == 0:
		errs = append(errs, field.Required(filters, "or scores: at least one rule is required"))
	case n > maxRules:
		errs = append(errs, field.TooMany(filters, n, maxRules))
	}
	names := fields.Unique{}
	for i, f := range c.Filters {
		errs = append(errs, validateRule(filters.Index(i), names, f.Name, f.MatchConditions)...)
		errs = append(errs, validateMessage(filters.Index(i).Child("message"), f.Message)...)
	}
	for i, s := range c.Scores {
		errs = append(errs, validateRule(scores.Index(i), names, s.Name, s.MatchConditions)...)
	}
	return errs
}

// validateRule adds the name to those that are taken.
func validateRule(
	path *field.Path, taken fields.Unique, name string, conditions []MatchCondition,
) (errs field.ErrorList) {
	if strings.HasSuffix(name, costExceededSuffix) {
		errs = append(errs, field.Invalid(path.Child("name"), name, "must not end in "+
			costExceededSuffix+", which is reserved for rules that exceed their cost limit"))
	} else {
		errs = taken.Add(path.Child("name"), name)
	}
	path = path.Child("matchConditions")
	if n := len(conditions); n > maxConditions {
		return append(errs, field.TooMany(path, n, maxConditions))
	}
	names := fields.Unique{}
	for i, m := range conditions {
		errs = append(errs, names.Add(path.Index(i).Child("name"), m.Name)...)
	}
	return errs
}

func validateMessage(path *field.Path, message string) field.ErrorList {
	var errs field.ErrorList
	if strings.ContainsFunc(message, unicode.IsControl) {
		errs = append(errs, field.Invalid(path, message, "must be one line"))
	}
	if loneNumber.MatchString(message) {
		errs = append(errs, field.Invalid(path, message,
			"must not contain a number: kube-scheduler groups nodes by message"))
	}
	if len(message) > maxMessage {
		errs = append(errs, field.TooLong(path, "", maxMessage))
	}
	return errs
}
