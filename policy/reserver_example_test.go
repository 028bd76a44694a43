package policy_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// seats hands out the seats of a license that the whole cluster shares, one to each
// pod that is labelled with it.
type seats struct {
	count int64
}

var license = snapshot.LedgerKey{Resource: "licenses/cad"}

var noSeat = &policy.Reason{Code: "NoSeat", Text: "all seats of the license are taken", Unit: "seats"}

func (s *seats) evaluate(pod *corev1.Pod, ledger *snapshot.Ledger) policy.Verdict {
	if used := ledger.Unit("seat").Used(); used >= s.count && ledger.Pod(pod.UID) == nil {
		return policy.Verdict{Reason: noSeat, Unresolvable: true, Want: 1}
	}
	return policy.Verdict{}
}

func (s *seats) Prepare(_ context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	if pod.Labels["license"] != "cad" {
		return nil, nil
	}
	return seatsCycle{s.evaluate(pod, view.Ledger(license))}, nil
}

type seatsCycle struct{ verdict policy.Verdict }

func (c seatsCycle) Filter(*snapshot.Node) policy.Verdict { return c.verdict }

func (s *seats) Ledgers(pod *corev1.Pod, _ *snapshot.Node) ([]snapshot.LedgerKey, error) {
	if pod.Labels["license"] != "cad" {
		return nil, nil
	}
	return []snapshot.LedgerKey{license}, nil
}

func (s *seats) Reserve(ask policy.ReserveRequest) (policy.Allocation, policy.Verdict) {
	if verdict := s.evaluate(ask.Pod, ask.Ledger); !verdict.Fits() {
		return policy.Allocation{}, verdict
	}
	return policy.Allocation{
		Units:       []policy.Capacity{{Unit: "seat", Capacity: s.count}},
		Amounts:     []policy.Amount{{Unit: "seat", Amount: 1}},
		Annotations: map[string]string{"example.com/seat-since": ask.At.Format(time.RFC3339)},
	}, policy.Verdict{}
}

func ExampleReserver() {
	pod := policytest.Pods(`metadata: {name: new, uid: new, labels: {license: cad}}`)[0]
	s := &seats{count: 2}
	for _, taken := range []int64{1, 2} {
		ledger := &snapshot.Ledger{Units: []snapshot.LedgerUnit{
			{Name: "seat", Capacity: 2, Allocations: []snapshot.LedgerAllocation{{Pod: "others", Amount: taken}}},
		}}
		allocation, verdict := s.Reserve(policy.ReserveRequest{Pod: pod, Ledger: ledger, At: time.Unix(0, 0).UTC()})
		if !verdict.Fits() {
			fmt.Println(verdict.Reason.Text)
			continue
		}
		fmt.Println(allocation.Amounts, allocation.Annotations)
	}
	// Output:
	// [{seat 1}] map[example.com/seat-since:1970-01-01T00:00:00Z]
	// all seats of the license are taken
}

func TestReserverExample(t *testing.T) {
	policytest.Run(t, policytest.Options{
		New: func() (policy.Policy, error) { return &seats{count: 2}, nil },
		Pods: policytest.Pods(`
- metadata: {name: new, labels: {license: cad}}
- metadata: {name: other}
`),
		Nodes: policytest.Nodes(`
- metadata: {name: a}
- metadata: {name: b}
`),
	})
}
