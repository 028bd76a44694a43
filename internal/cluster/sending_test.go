package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/binder"
)

// TestSending follows the histories of testdata/sending.txt.
func TestSending(t *testing.T) {
	text, err := os.ReadFile("testdata/sending.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, histories, _ := strings.Cut(string(text), "\n\n# ")
	for history := range strings.SplitSeq(histories, "\n\n# ") {
		name, history, _ := strings.Cut(strings.TrimSpace(history), "\n")
		t.Run(name, func(t *testing.T) {
			s := Sending{Binding: binder.Binding{Namespace: "default", Name: "p", UID: "u", Node: "a", ResourceVersion: "1"}}
			lines := strings.Split(history, "\n")
			for _, line := range lines[:len(lines)-1] {
				request, came, _ := strings.Cut(line, ": ")
				if got := cmp.Or(string(s.Request), "postBinding"); got != request {
					t.Fatalf("the request is %s, want %s", got, request)
				}
				// Whatever else might have come of it leaves this Binding as it is.
				s.Next(SendResponse{Err: errors.New("no response")})
				s.Next(responseThat("version 1"))
				s = s.Next(responseThat(came))
			}
			if want := lines[len(lines)-1]; s.Request != Ended || outcomeOf(s) != want {
				t.Errorf("the request is %q, and the outcome\n%s\nwant\n%s", s.Request, outcomeOf(s), want)
			}
			defer func() {
				if recover() == nil {
					t.Error("a step after the end does not panic")
				}
			}()
			s.Next(SendResponse{})
		})
	}
}

// responseThat returns what a history says came of a request.
func responseThat(came string) SendResponse {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u", ResourceVersion: "1"}}
	if code, err := strconv.Atoi(came); err == nil {
		return SendResponse{Sent: true, Err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: int32(code), Message: came, Reason: map[int]metav1.StatusReason{
			404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonConflict,
		}[code]}}}
	}
	switch came {
	case "accepted":
		return SendResponse{Sent: true, Pod: pod}
	case "accepted, unwatched":
		return SendResponse{Sent: true}
	case "not sent":
		return SendResponse{Err: errors.New("too late")}
	case "lost", "no response":
		return SendResponse{Sent: true, Err: errors.New(came)}
	case "gone":
		return SendResponse{}
	}
	for what := range strings.SplitSeq(came, ", ") {
		switch key, value, _ := strings.Cut(what, " "); key {
		case "version":
			pod.ResourceVersion = value
		case "on":
			pod.Spec.NodeName = value
		case "UID":
			pod.UID = types.UID(value)
		case "deleted":
			pod.DeletionTimestamp = new(metav1.Time)
		}
	}
	return SendResponse{Pod: pod}
}

func outcomeOf(s Sending) string {
	switch {
	case s.Failure != nil && s.Failure.changed:
		return fmt.Sprintf("%s, changed: %v", s.outcome(), s.Failure)
	case s.Failure != nil:
		return fmt.Sprintf("%s: %v", s.outcome(), s.Failure)
	case s.Pod == nil:
		return fmt.Sprintf("bound %s: gone", s.outcome())
	}
	return fmt.Sprintf("bound %s: version %s, on %s", s.outcome(), cmp.Or(s.Pod.ResourceVersion, "unknown"), s.Pod.Spec.NodeName)
}
