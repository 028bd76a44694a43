package binder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// gpuAndSeat is a policy that allocates from a ledger of the node and from a pool.
type gpuAndSeat struct{}

func (gpuAndSeat) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return nil, nil
}

func (gpuAndSeat) Ledgers(_ *corev1.Pod, n *snapshot.Node) ([]snapshot.LedgerKey, error) {
	return []snapshot.LedgerKey{{Resource: "gpu", Node: n.Name}, {Resource: "seats"}}, nil
}

func (gpuAndSeat) Reserve(policy.ReserveRequest) (policy.Claim, policy.Verdict) {
	return policy.Claim{}, policy.Verdict{}
}

// TestProtocol follows the histories of testdata/protocol.txt.
func TestProtocol(t *testing.T) {
	text, err := os.ReadFile("testdata/protocol.txt")
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "A", Policy: gpuAndSeat{}, Weight: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	target := Target{View: new(snapshot.View), Node: snapshot.NewNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})}
	for history := range strings.SplitSeq(string(text), "\n\n# ") {
		name, history, _ := strings.Cut(history, "\n")
		if strings.HasPrefix(name, "Histories") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			p, next := begin(e, target, podThat("version 1"))
			for line := range strings.SplitSeq(strings.TrimSpace(history), "\n") {
				if got := textOf(next); next.action == done && got != line || next.action != done && !strings.HasPrefix(line+": ", got+": ") {
					t.Fatalf("the protocol is at %q, want %q", got, line)
				}
				if next.action != done {
					// Whatever else might have come of it leaves this protocol as it is.
					p.step(result{err: ErrOutcomeUnknown})
					p.step(resultOf(next, ""))
					p, next = p.step(resultOf(next, strings.TrimPrefix(strings.TrimPrefix(line, textOf(next)), ": ")))
				}
			}
			if next.action != done {
				t.Errorf("the history ends before %q", textOf(next))
			}
			defer func() {
				if recover() == nil {
					t.Error("a step after the end does not panic")
				}
			}()
			p.step(result{})
		})
	}
}

// textOf returns the task as histories have it.
func textOf(t task) string {
	switch t.action {
	case claim:
		return "claim " + t.claim.Key.Resource
	case await:
		return fmt.Sprint("await ", strings.Trim(fmt.Sprint(t.after), "[]"))
	case bind:
		return "bind version " + t.binding.ResourceVersion
	case read:
		return "read"
	case touch:
		return "touch"
	case release:
		return "release " + t.held.Key.Resource
	case revoke:
		return "revoke " + t.held.Key.Resource
	}
	if t.err == nil {
		return "bound"
	}
	return "not bound: " + strings.ReplaceAll(t.err.Error(), "\n", "; ")
}

// resultOf returns what a history says came of the task; "": it succeeds.
func resultOf(t task, came string) result {
	held := engine.HeldClaim{Claim: t.claim}
	switch {
	case came == "" || strings.HasPrefix(came, "after "):
		if came != "" {
			held.After = []types.UID{types.UID(strings.TrimPrefix(came, "after "))}
		}
		return result{held: held}
	case came == "unusable":
		return result{err: fmt.Errorf("node a: %w", &engine.UnusableClaimError{Reason: "the GPU has failed", Claim: held})}
	case came == "unknown":
		return result{err: ErrOutcomeUnknown}
	case came == "changed":
		return result{err: ErrPodChanged}
	case came == "gone", strings.HasPrefix(came, "on "), strings.HasPrefix(came, "version "):
		return result{pod: podThat(came)}
	}
	return result{err: errors.New(came)}
}

// podThat returns the pod that is gone (nil), on a node, or not bound and of a version.
func podThat(is string) *corev1.Pod {
	what, value, _ := strings.Cut(is, " ")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u"}}
	switch what {
	case "gone":
		return nil
	case "on":
		pod.Spec.NodeName = value
	default:
		pod.ResourceVersion = value
	}
	return pod
}
