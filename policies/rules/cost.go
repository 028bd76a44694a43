package rules

import (
	"errors"
	"fmt"
	"math"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

// The limits of one evaluation, in Kubernetes' units of cost. They are lower than that of an
// admission policy, because kube-scheduler waits one second for the verdicts about hundreds of
// nodes.
const (
	// costLimit is for what is computed once for a pod, or once for a state of a node.
	costLimit = celconfig.PerCallLimit / 4
	// nodeCostLimit is for what is computed for each pod and node.
	nodeCostLimit = costLimit / 50
)

// program compiles an expression whose evaluation costs at most limit: it counts the cost if the
// estimate for the largest objects exceeds the limit. Counting allocates, and takes quadratic time
// in the length of a loop.
func (c *compiler) program(checked *cel.Ast, limit uint64) (cel.Program, error) {
	options := []cel.ProgramOption{
		cel.EvalOptions(cel.OptOptimize),
		cel.InterruptCheckFrequency(celconfig.CheckFrequency),
	}
	if c.estimate(checked, c.largest) > limit {
		options = append(options,
			cel.CostLimit(limit),
			cel.CostTracking(&library.CostEstimator{}),
			cel.CostTrackerOptions(interpreter.PresenceTestHasCost(false)),
		)
	}
	return c.env.Program(checked, options...)
}

// exceeds reports whether an evaluation failed because of its cost.
func exceeds(err error) bool {
	cancelled, ok := errors.AsType[interpreter.EvalCancelledError](err)
	return ok && cancelled.Cause == interpreter.CostLimitExceeded
}

// checkCost returns what is wrong with an expression that exceeds the limit even for objects of
// usual size, "" if it does not.
func (c *compiler) checkCost(checked *cel.Ast) string {
	switch cost := c.estimate(checked, usual); {
	case cost <= costLimit:
		return ""
	case cost > 1e12:
		return fmt.Sprintf("its cost cannot be estimated: must be at most %d", costLimit)
	default:
		return fmt.Sprintf("has an estimated cost of %d: must be at most %d; check for nested loops",
			cost, costLimit)
	}
}

// estimate returns the highest cost of an evaluation if the variables have at most these sizes.
func (c *compiler) estimate(checked *cel.Ast, within sizes) uint64 {
	cost, err := c.env.EstimateCost(checked, &library.CostEstimator{SizeEstimator: within})
	if err != nil {
		return math.MaxUint64
	}
	return cost.Max
}

// sizes returns how many bytes a text in the variable has at most, and how many elements a list or
// a map there; 0 if that is not known. The variable is "" for the result of a function.
type sizes func(variable string) (text, elements uint64)

func usual(string) (text, elements uint64) { return 256, 64 }

// largest are the sizes of the largest objects that policies see, which snapshot.SizeOf measures:
// each element takes 16 bytes. How many keys a signal has is not known.
func (c *compiler) largest(variable string) (text, elements uint64) {
	depends, known := variables[variable]
	for _, p := range c.parts {
		if p.name == variable {
			depends, known = p.deps, true
		}
	}
	switch {
	case !known || depends&onKeyed != 0:
		return 0, 0
	case depends&onPod != 0:
		return snapshot.MaxPod, snapshot.MaxPod / 16
	}
	return snapshot.MaxNode, snapshot.MaxNode / 16
}

func (s sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	variable := ""
	if path := node.Path(); len(path) > 0 {
		variable = path[0]
	}
	text, elements := s(variable)
	switch kind := node.Type().Kind(); {
	case node.Type().IsExactType(apiservercel.QuantityType):
		return &checker.SizeEstimate{Max: fields.LongestQuantity}
	case text == 0:
	case kind == types.StringKind, kind == types.BytesKind:
		return &checker.SizeEstimate{Max: text}
	case kind == types.ListKind, kind == types.MapKind:
		return &checker.SizeEstimate{Max: elements}
	}
	return nil // the library derives the size of a function's result from the arguments
}

func (sizes) EstimateCallCost(
	string, string, *checker.AstNode, []checker.AstNode,
) *checker.CallEstimate {
	return nil
}

// patterns are the functions that compile an argument, and what it is. Compiling any text can cost
// much, and Kubernetes counts the cost of a call after it has ended, so the argument must be a
// literal.
var patterns = map[string]string{
	"matches": "regular expression", "find": "regular expression", "findAll": "regular expression",
	"format": "format",
}

// checkPattern returns what is wrong with a call that compiles a computed argument, "" if nothing
// is.
func checkPattern(e ast.Expr) string {
	if e.Kind() != ast.CallKind || patterns[e.AsCall().FunctionName()] == "" {
		return ""
	}
	args, at, name := children(e), 1, e.AsCall().FunctionName()
	if name == "format" {
		at = 0
	}
	if len(args) <= at || args[at].Kind() == ast.LiteralKind {
		return ""
	}
	return fmt.Sprintf(
		"the %s of %s must be a literal text, because a computed one can exceed any limit",
		patterns[name], name)
}
