package seats_test

import (
	"testing"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"

	"example.com/cad/seats"
)

func TestConformance(t *testing.T) {
	policytest.Run(t, policytest.Options{
		New:      func() (policy.Policy, error) { return seats.New(seats.Config{License: "cad", Seats: 2}) },
		Pods:     policytest.Pods("- metadata: {name: new, uid: new, labels: {example.com/license: cad}}\n- metadata: {name: other, uid: other}\n"),
		Nodes:    policytest.Nodes("- metadata: {name: a}\n- metadata: {name: b}\n"),
		Assigned: policytest.Pods("- {metadata: {name: one, uid: one, labels: {example.com/license: cad}}, spec: {nodeName: a}}\n"),
	})
}
