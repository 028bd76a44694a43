package policy_test

import (
	"testing"

	"outboard.dev/outboard/policy/policytest"
)

// TestExample: the example policy in the documentation conforms to the contract.
func TestExample(t *testing.T) {
	policytest.Run(t, policytest.Options{
		New: newTeamNodes,
		Pods: policytest.Pods(`
- metadata: {name: new, labels: {team: blue}}
- metadata: {name: teamless}
`),
		Nodes: policytest.Nodes(`
- metadata: {name: red, labels: {team: red}}
- metadata: {name: blue, labels: {team: blue}}
- metadata: {name: shared}
`),
		Assigned: policytest.Pods(`
- {metadata: {name: a, labels: {team: blue}}, spec: {nodeName: shared}}
- {metadata: {name: b, labels: {team: red}}, spec: {nodeName: shared}}
- {metadata: {name: c}, spec: {nodeName: red}}
`),
	})
}
