// Package seats is an example of a policy outside Outboard: pods with a label get one of
// the seats of a license that the whole cluster shares.
package seats

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

// Config is the configuration of the policy.
type Config struct {
	// License is the value of the label example.com/license of pods that need a seat.
	// Required.
	License string `json:"license" required:"must be the value of a label"`
	// Seats is the number of seats, at least 1. Default 2. The policy knows no limit of its own:
	// with as many pods as a ledger can hold, 512, Outboard rejects nodes itself.
	Seats int64 `json:"seats" limits:"1.."`
}

// Type is the type of the policy in configuration files.
func Type() policy.Type { return policy.TypeOf("Seats", Defaults, New) }

// Defaults is the configuration of a policy without any fields.
func Defaults() Config { return Config{Seats: 2} }

// New returns the policy, or an aggregate of field.Error values.
func New(c Config) (policy.Policy, error) {
	errs := fields.Check(nil, c)
	return &seats{c, snapshot.LedgerKey{Resource: "seats/" + c.License}}, errs.ToAggregate()
}

type seats struct {
	config Config
	ledger snapshot.LedgerKey
}

var noSeat = &policy.Reason{Code: "NoSeat", Text: "all seats of the license are taken", Unit: "seats"}

func (s *seats) applies(pod *corev1.Pod) bool {
	return pod.Labels["example.com/license"] == s.config.License
}

func (s *seats) evaluate(pod *corev1.Pod, ledger *snapshot.Ledger) policy.Verdict {
	used := ledger.Unit("seat").Used()
	if used >= s.config.Seats && ledger.Pod(pod.UID) == nil {
		return policy.Verdict{Reason: noSeat, Unresolvable: true, Have: s.config.Seats - used, Want: 1}
	}
	return policy.Verdict{}
}

func (s *seats) Prepare(_ context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	if !s.applies(pod) {
		return nil, nil
	}
	return cycle{s.evaluate(pod, view.Ledger(s.ledger))}, nil
}

type cycle struct{ verdict policy.Verdict }

func (c cycle) Filter(*snapshot.Node) policy.Verdict { return c.verdict }

func (s *seats) Ledgers(pod *corev1.Pod, _ *snapshot.Node) ([]snapshot.LedgerKey, error) {
	if !s.applies(pod) {
		return nil, nil
	}
	return []snapshot.LedgerKey{s.ledger}, nil
}

func (s *seats) Reserve(ask policy.ReserveRequest) (policy.Allocation, policy.Verdict) {
	if verdict := s.evaluate(ask.Pod, ask.Ledger); !verdict.Fits() {
		return policy.Allocation{}, verdict
	}
	return policy.Allocation{
		Units:       []policy.Capacity{{Unit: "seat", Capacity: s.config.Seats}},
		Amounts:     []policy.Amount{{Unit: "seat", Amount: 1}},
		Annotations: map[string]string{"example.com/seat": s.config.License},
	}, policy.Verdict{}
}
