// Package rules is the policy Rules: filters and scores written in CEL. README.md in this folder is
// its documentation.
//
// A rule may run for thousands of nodes in each call, and CEL's interpreter is many times as slow
// as Go. So the policy computes each piece of an expression as rarely as its variables allow. This
// filter passes five stages:
//
//	usage.pods < 100 && signals.load * 2.0 < 1.5 &&
//	  node.metadata.labels["team"] == pod.metadata.labels["team"]
//
// # 1. Parse
//
// When the configuration is loaded, newCompiler (compile.go) makes an environment with the
// variables and functions of README.md (env.go), whose types are those of Kubernetes' API in Go
// without the fields that Outboard does not keep (schema.go). compile parses the expression and
// checks its types: here, && takes three truth values.
//
// # 2. Check
//
// analyze (analysis.go) finds which variables each subexpression depends on. compile rejects what a
// rule may not do: a match condition that reads the node, a pattern that is not a literal, and an
// expression whose estimated cost exceeds its limit (cost.go). setup.go warns of labels that may be
// missing, such as team.
//
// # 3. Split
//
// split (compile.go) takes out the largest subexpressions that depend on one thing alone, as parts
// with programs of their own, and replaces each with a variable:
//
//	@0  usage.pods < 100               ofUsage    once for each state of the node
//	@1  signals.load                   ofSignal   read each time
//	@2  node.metadata.labels["team"]   ofObject   once for each version of the Node object
//	@3  pod.metadata.labels["team"]    ofRequest  once a request
//
// What remains is @0 && @1 * 2.0 < 1.5 && @2 == @3. It and each part become programs of CEL. A
// program counts its cost if the largest objects could exceed its limit (cost.go).
//
// # 4. Prepare
//
// For each pod, Prepare (rules.go) evaluates the match conditions and the parts that depend on the
// request, here @3. A rule that is then known to be true for all nodes is dropped.
//
// # 5. Evaluate
//
// For each node, eval (rules.go) runs what remains. Its variables are the kept values of @0 and @2,
// which are facts of the node (arrange), the value of @3, and the number of the signal. An error
// becomes what failurePolicy and whenStale say (verdict), and explain.go shows the parts with their
// values.
//
// What always holds:
//
//   - The value of an expression is that of CEL for the whole expression, however it is split.
//   - Whether an evaluation fails, also by its cost, depends on the rule, the pod, the node and
//     the signals alone.
//   - A value that is kept is never changed: quantities, which CEL's functions change, are copied
//     for each use.
package rules
