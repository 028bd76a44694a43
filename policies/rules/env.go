package rules

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"outboard.dev/outboard/policy/fields"
)

// The variables of expressions.
const (
	podVar      = "pod"
	requestsVar = "podRequests"
	nodeVar     = "node"
	usageVar    = "usage"
	signalsVar  = "signals"
	keyedVar    = "keyed"
)

// newEnv returns the CEL environment of Kubernetes 1.37, as in
// k8s.io/apiserver/pkg/cel/environment, without the libraries that call an API server for
// authorization. It does not use that package, because all its programs count their cost: see
// [compiler.program].
func newEnv(s *schema) (*cel.Env, error) {
	base, err := cel.NewEnv(
		cel.HomogeneousAggregateLiterals(),
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(cel.OptionalTypesVersion(2)),
		cel.CostEstimatorOptions(checker.PresenceTestHasCost(false)),
		cel.ASTValidators(
			cel.ValidateDurationLiterals(),
			cel.ValidateTimestampLiterals(),
			cel.ValidateRegexLiterals(),
			cel.ValidateHomogeneousAggregateLiterals(),
		),
		ext.Strings(ext.StringsVersion(2)),
		ext.Sets(),
		ext.Lists(ext.ListsVersion(3)),
		ext.TwoVarComprehensions(),
		library.URLs(), library.Regex(), library.Lists(library.ListsVersion(1)), library.Quantity(),
		library.IP(), library.CIDR(), library.Format(), library.SemverLib(library.SemverVersion(1)),
	)
	if err != nil {
		return nil, err
	}
	quantities := types.NewMapType(types.StringType, apiservercel.QuantityType)
	numbers := types.NewMapType(types.StringType, types.DoubleType)
	return base.Extend(
		cel.CustomTypeProvider(s),
		cel.CustomTypeAdapter(s),
		cel.EnableMacroCallTracking(),
		cel.Variable(podVar, types.NewObjectType("v1.Pod")),
		cel.Variable(requestsVar, quantities),
		cel.Variable(nodeVar, types.NewObjectType("v1.Node")),
		cel.Variable(usageVar, types.NewObjectType("usage")),
		cel.Variable(signalsVar, numbers),
		cel.Variable(keyedVar, types.NewMapType(types.StringType, numbers)),
		// In an admission policy, quantities of objects are strings, which this function parses;
		// here they are quantities already.
		cel.Function("quantity", cel.Overload("quantity_to_quantity",
			[]*cel.Type{apiservercel.QuantityType}, apiservercel.QuantityType,
			cel.UnaryBinding(func(q ref.Val) ref.Val { return q })),
			// Kubernetes' own functions take minutes for some short texts, such as 1e-100000000.
			cel.Overload("string_to_quantity",
				[]*cel.Type{cel.StringType}, apiservercel.QuantityType,
				cel.UnaryBinding(parseQuantity))),
		cel.Function("isQuantity", cel.Overload("is_quantity_string",
			[]*cel.Type{cel.StringType}, cel.BoolType,
			cel.UnaryBinding(func(v ref.Val) ref.Val {
				return types.Bool(!types.IsError(parseQuantity(v)))
			}))),
	)
}

func parseQuantity(text ref.Val) ref.Val {
	q, err := fields.ParseQuantity(string(text.(types.String)))
	if err != nil {
		return types.WrapErr(err)
	}
	return apiservercel.Quantity{Quantity: &q}
}
