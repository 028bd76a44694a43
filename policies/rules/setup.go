package rules

import (
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
	// WhenStale says what happens to a node if a filter reads a signal that is missing or
	// stale: Neutral (the default), the rule is ignored, or Reject.
	WhenStale policy.WhenStale `json:"whenStale" values:"Neutral,Reject"`
	// Filter are rules that say which nodes fit.
	Filter []FilterRule `json:"filter"`
	// Score are rules that say which nodes are better.
	Score []ScoreRule `json:"score"`
}

// FilterRule says whether a pod may run on a node.
type FilterRule struct {
	// Name is in CamelCase, and unique in the policy. It is the code of the reason.
	Name string `json:"name" required:"identifies the rule in reasons and explanations"`
	// When is an expression about the pod alone. "" means that the rule applies to all
	// pods.
	When string `json:"when"`
	// Expression is true for nodes on which the pod may run. Required.
	Expression string `json:"expression" required:"-"`
	// Message is the event text for nodes on which the pod does not fit: one line without
	// numbers. "" is "node(s) do not satisfy rule" and the name.
	Message string `json:"message"`
	// Resolvable says whether preemption can help: the pod may fit when other pods are
	// gone. By default, it can if the expression reads usage.
	Resolvable *bool `json:"resolvable"`
	// FailurePolicy says what happens if an evaluation of Expression or When fails, because
	// a key is missing, a text is not a version, or it exceeds its cost limit. Fail ("", the
	// default) rejects the node if it is Expression, and fails the request if it is When.
	// Ignore ignores the rule.
	FailurePolicy policy.FailurePolicy `json:"failurePolicy" values:",Fail,Ignore"`
}

// ScoreRule says how good a node is.
type ScoreRule struct {
	// Name is like that of a filter rule.
	Name string `json:"name" required:"identifies the rule in reasons and explanations"`
	// When is like that of a filter rule.
	When string `json:"when"`
	// Expression is a number: 0 (and less) is worst, 100 (and more) best. Required.
	Expression string `json:"expression" required:"-"`
	// Weight is the weight of the rule among the score rules of the policy, 0..100. With 0 the
	// rule is checked and not evaluated. Default 1.
	Weight *int32 `json:"weight" limits:"0..100"`
	// FailurePolicy says what happens if an evaluation of When fails: Fail ("", the default)
	// fails the request, and Ignore ignores the rule.
	FailurePolicy policy.FailurePolicy `json:"failurePolicy" values:",Fail,Ignore"`
}

// weight returns the weight of the rule, with the default.
func (s *ScoreRule) weight() int32 {
	if s.Weight == nil {
		return 1
	}
	return *s.Weight
}

const (
	// maxRules bounds the rules of one policy.
	maxRules = 100
	// maxMessage bounds a message, in bytes.
	maxMessage = 200
)

var (
	camelCase  = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)
	loneNumber = regexp.MustCompile(`(^|[^A-Za-z0-9])[0-9]`)
)

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
	return c.build(config)
}

// build is New with a new compiler.
func (c *compiler) build(config Config) (policy.Policy, error) {
	errs := config.validate()
	if len(config.Filter)+len(config.Score) > maxRules {
		return nil, errs.ToAggregate()
	}
	p := &rules{whenStale: config.WhenStale}
	for i := range config.Filter {
		errs = append(errs, p.addFilter(c, field.NewPath("filter").Index(i), &config.Filter[i])...)
	}
	for i := range config.Score {
		errs = append(errs, p.addScore(c, field.NewPath("score").Index(i), &config.Score[i])...)
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	slices.SortStableFunc(p.filters, func(a, b *rule) int {
		if a.unresolvable == b.unresolvable {
			return 0
		} else if a.unresolvable {
			return -1
		}
		return 1
	})
	p.arrange(c)
	return p, nil
}

func (p *rules) addFilter(c *compiler, path *field.Path, f *FilterRule) field.ErrorList {
	r, errs := p.newRule(c, path, f.Name, f.When, f.Expression, f.FailurePolicy, types.BoolType)
	if len(errs) > 0 {
		return errs
	}
	r.reason = &policy.Reason{Code: f.Name, Text: f.Message}
	if f.Message == "" {
		r.reason.Text = "node(s) do not satisfy rule " + f.Name
	}
	r.costExceeded = &policy.Reason{Code: f.Name + costExceededSuffix, Text: "node(s) for which rule " + f.Name + " exceeds its cost limit"}
	r.unresolvable = r.expression.deps&onUsage == 0
	if f.Resolvable != nil {
		r.unresolvable = !*f.Resolvable
	}
	p.filters = append(p.filters, r)
	p.warnings = append(p.warnings, r.warnLookups(path, f.When, f.Expression)...)
	return nil
}

func (p *rules) addScore(c *compiler, path *field.Path, s *ScoreRule) field.ErrorList {
	r, errs := p.newRule(c, path, s.Name, s.When, s.Expression, s.FailurePolicy, types.DoubleType, types.IntType, types.UintType)
	if len(errs) > 0 {
		return errs
	}
	if r.weight = float64(s.weight()); r.weight > 0 {
		p.scores = append(p.scores, r)
		p.warnings = append(p.warnings, r.warnLookups(path, s.When, s.Expression)...)
	}
	return nil
}

func (p *rules) newRule(c *compiler, path *field.Path, name, when, text string, failurePolicy policy.FailurePolicy, results ...*types.Type) (*rule, field.ErrorList) {
	r := &rule{name: name, failurePolicy: failurePolicy}
	if failurePolicy == "" {
		r.failurePolicy = policy.Fail
	}
	var errs, more field.ErrorList
	if when != "" {
		r.when, errs = c.compile(path.Child("when"), when, onPod, types.BoolType)
	}
	r.expression, more = c.compile(path.Child("expression"), text, ^deps(0), results...)
	if errs = append(errs, more...); len(errs) > 0 {
		return nil, errs
	}
	for _, read := range r.expression.reads {
		signal := policy.Signal{Field: path.Child("expression").String(), Name: read.signal, About: policy.AboutNodes}
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

func (c *Config) validate() field.ErrorList {
	errs := fields.Check(nil, c)
	switch n := len(c.Filter) + len(c.Score); {
	case n == 0:
		errs = append(errs, field.Required(field.NewPath("filter"), "or score: at least one rule is required"))
	case n > maxRules:
		errs = append(errs, field.TooMany(field.NewPath("filter"), n, maxRules))
	}
	names := map[string]bool{signalStale.Code: true, ruleFailed.Code: true}
	for i := range c.Filter {
		path := field.NewPath("filter").Index(i)
		errs = append(errs, validateName(path.Child("name"), names, c.Filter[i].Name)...)
		errs = append(errs, validateMessage(path.Child("message"), c.Filter[i].Message)...)
	}
	for i := range c.Score {
		path := field.NewPath("score").Index(i)
		errs = append(errs, validateName(path.Child("name"), names, c.Score[i].Name)...)
	}
	return errs
}

// validateName notes the name among those that are taken.
func validateName(path *field.Path, names map[string]bool, name string) field.ErrorList {
	var errs field.ErrorList
	switch {
	case name == "":
	case !camelCase.MatchString(name):
		errs = append(errs, field.Invalid(path, name, "must be in CamelCase, at most 63 letters and digits"))
	case names[name]:
		err := field.Duplicate(path, name)
		err.Detail = "is the name of another rule, or reserved for a reason of the policy"
		errs = append(errs, err)
	case strings.HasSuffix(name, costExceededSuffix):
		errs = append(errs, field.Invalid(path, name, "must not end in "+costExceededSuffix+", which is reserved for rules that exceed their cost limit"))
	}
	names[name] = true
	return errs
}

func validateMessage(path *field.Path, message string) field.ErrorList {
	var errs field.ErrorList
	if strings.ContainsFunc(message, unicode.IsControl) {
		errs = append(errs, field.Invalid(path, message, "must be one line"))
	}
	if loneNumber.MatchString(message) {
		errs = append(errs, field.Invalid(path, message, "must not contain a number: kube-scheduler groups nodes by message"))
	}
	if len(message) > maxMessage {
		errs = append(errs, field.TooLong(path, "", maxMessage))
	}
	return errs
}
