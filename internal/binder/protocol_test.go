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

func (gpuAndSeat) Reserve(policy.ReserveRequest) (policy.Allocation, policy.Verdict) {
	return policy.Allocation{}, policy.Verdict{}
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
			p, next := Begin(e, target, podThat("version 1"))
			for line := range strings.SplitSeq(strings.TrimSpace(history), "\n") {
				if got := textOf(next); next.Action == Done && got != line || next.Action != Done && !strings.HasPrefix(line+": ", got+": ") {
					t.Fatalf("the protocol is at %q, want %q", got, line)
				}
				if next.Action != Done {
					// Whatever else might have come of it leaves this protocol as it is.
					p.Step(Result{Err: ErrOutcomeUnknown})
					p.Step(resultOf(next, ""))
					p, next = p.Step(resultOf(next, strings.TrimPrefix(strings.TrimPrefix(line, textOf(next)), ": ")))
				}
			}
			if next.Action != Done {
				t.Errorf("the history ends before %q", textOf(next))
			}
			defer func() {
				if recover() == nil {
					t.Error("a step after the end does not panic")
				}
			}()
			p.Step(Result{})
		})
	}
}

// textOf returns the task as histories have it.
func textOf(t Task) string {
	switch t.Action {
	case Allocation:
		return "allocation " + t.Allocation.Key.Resource
	case Await:
		return fmt.Sprint("await ", strings.Trim(fmt.Sprint(t.After), "[]"))
	case Bind:
		return "bind version " + t.Binding.ResourceVersion
	case Read:
		return "read"
	case Touch:
		return "touch"
	case Release:
		return "release " + t.Held.Key.Resource
	case Revoke:
		return "revoke " + t.Held.Key.Resource
	}
	if t.Err == nil {
		return "bound"
	}
	return "not bound: " + strings.ReplaceAll(t.Err.Error(), "\n", "; ")
}

// resultOf returns what a history says came of the task; "": it succeeds.
func resultOf(t Task, came string) Result {
	held := engine.HeldAllocation{Allocation: t.Allocation}
	switch {
	case came == "" || strings.HasPrefix(came, "after "):
		if came != "" {
			held.After = []types.UID{types.UID(strings.TrimPrefix(came, "after "))}
		}
		return Result{Held: held}
	case came == "unusable":
		return Result{Err: fmt.Errorf("node a: %w", &engine.UnusableAllocationError{Reason: "the GPU has failed", Allocation: held})}
	case came == "unknown":
		return Result{Err: ErrOutcomeUnknown}
	case came == "changed":
		return Result{Err: ErrPodChanged}
	case came == "gone", strings.HasPrefix(came, "on "), strings.HasPrefix(came, "version "):
		return Result{Pod: podThat(came)}
	}
	return Result{Err: errors.New(came)}
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
