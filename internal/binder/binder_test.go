package binder_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

const unit = "example.com/unit"

// oneUnit is a policy that allocates the only unit of a node. The annotation of an allocation is the time of the allocation, so that the
// annotations of two allocations differ.
type oneUnit struct {
	after    []types.UID
	unusable func() bool // whether an existing allocation cannot be used; nil: it can
}

var (
	taken  = &policy.Reason{Code: "Taken", Text: "the unit is taken"}
	failed = &policy.Reason{Code: "Failed", Text: "the unit has failed"}
)

func (*oneUnit) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return nil, nil
}

func (*oneUnit) Ledgers(pod *corev1.Pod, n *snapshot.Node) ([]snapshot.LedgerKey, error) {
	if pod.Labels["needs"] == "nothing" {
		return nil, nil
	}
	return []snapshot.LedgerKey{{Resource: unit, Node: n.Name}}, nil
}

func (o *oneUnit) Reserve(ask policy.ReserveRequest) (policy.Allocation, policy.Verdict) {
	if ask.Ledger.Unit("0").Used() > 0 {
		return policy.Allocation{}, policy.Verdict{Reason: taken}
	}
	return policy.Allocation{
		Units: []policy.Capacity{{Unit: "0", Capacity: 1}}, Amounts: []policy.Amount{{Unit: "0", Amount: 1}},
		Annotations: map[string]string{unit: ask.At.Format(time.RFC3339Nano)}, After: o.after,
	}, policy.Verdict{}
}

func (o *oneUnit) ValidateAllocation(policy.ReserveRequest) ([]types.UID, policy.Verdict) {
	if o.unusable != nil && o.unusable() {
		return nil, policy.Verdict{Reason: failed}
	}
	return o.after, policy.Verdict{}
}

// apiServer is an API server with one pod, and ledgers. Tests let its calls fail.
type apiServer struct {
	pod         *corev1.Pod // nil: gone
	version     int
	view        *snapshot.View
	ledgers     map[snapshot.LedgerKey]snapshot.Ledger
	allocations int // number of allocations written

	assumed   string // the node on which the pod counts before it is bound
	throttled error
	onBind    func(b binder.Binding) error // if not nil, replaces receive
	onTouch   func() error                 // if not nil, runs before the pod is changed; its error is that of TouchPod
	onLive    error
	onRelease func() error // if not nil, its error is that of Release and Revoke
}

func newAPIServer() *apiServer {
	var b snapshot.Builder
	for _, name := range []string{"a", "b"} {
		b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return &apiServer{pod: newPod(), view: b.View(), ledgers: map[snapshot.LedgerKey]snapshot.Ledger{}}
}

func newPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u", ResourceVersion: "0"}}
}

// bind binds the pod as the caller last saw it.
func (s *apiServer) bind(ctx context.Context, p *oneUnit, pod *corev1.Pod, node string) error {
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "OneUnit", Policy: p, Weight: 1}}})
	if err != nil {
		return err
	}
	b := binder.Binder{Engine: e, Cluster: s, Ledgers: s, Awaited: new(binder.Awaited), Why: func(*corev1.Pod, string) string { return "why" }}
	_, err = b.Bind(ctx, pod, binder.Target{View: s.view, Node: s.view.Node(node)})
	return err
}

func (s *apiServer) changed() { s.version++; s.pod.ResourceVersion = fmt.Sprint(s.version) }

func (s *apiServer) View() *snapshot.View { return s.view }

func (s *apiServer) Superseded(*snapshot.View) <-chan struct{} { return nil }

func (s *apiServer) Assumed(types.UID) string { return s.assumed }

func (s *apiServer) PodByUID(types.UID) *corev1.Pod { return s.pod }

func (s *apiServer) LivePod(context.Context, string, string, types.UID) (*corev1.Pod, error) {
	return s.pod.DeepCopy(), s.onLive
}

func (s *apiServer) TouchPod(context.Context, string, string, types.UID) (*corev1.Pod, error) {
	if s.onTouch != nil {
		if err := s.onTouch(); err != nil {
			return nil, err
		}
	}
	if s.pod != nil {
		s.changed()
	}
	return s.pod.DeepCopy(), nil
}

type throttledKey struct{}

func (s *apiServer) Throttle(ctx context.Context) (context.Context, error) {
	return context.WithValue(ctx, throttledKey{}, true), s.throttled
}

func (s *apiServer) Bind(ctx context.Context, b binder.Binding) error {
	if ctx.Value(throttledKey{}) == nil {
		return errors.New("the context is not that of Throttle")
	}
	if s.onBind != nil {
		return s.onBind(b)
	}
	return s.receive(b)
}

// receive binds the pod, as the API server does.
func (s *apiServer) receive(b binder.Binding) error {
	switch {
	case s.pod == nil || s.pod.UID != b.UID:
		return errors.New("the pod is gone")
	case s.pod.Spec.NodeName == b.Node:
		return nil
	case s.pod.Spec.NodeName != "":
		return fmt.Errorf("the pod is bound to %s", s.pod.Spec.NodeName)
	case b.ResourceVersion != "" && b.ResourceVersion != s.pod.ResourceVersion:
		return binder.ErrPodChanged
	}
	s.pod.Spec.NodeName, s.pod.Annotations = b.Node, maps.Clone(b.Annotations)
	s.changed()
	return nil
}

func (s *apiServer) Allocate(_ context.Context, key snapshot.LedgerKey, pod *corev1.Pod, node string, choose engine.Choose) (snapshot.LedgerPod, error) {
	l, ok := s.ledgers[key]
	if !ok {
		l = snapshot.Ledger{Resource: key.Resource, Node: key.Node}
	}
	s.allocations++
	entry := snapshot.LedgerPod{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: node, Token: fmt.Sprint(s.allocations)}
	next, held, err := ledger.Allocate(l, entry, choose, time.Unix(int64(s.allocations), 0))
	if err == nil {
		s.ledgers[key] = next
	}
	return held, err
}

func (s *apiServer) Release(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	if held.Shared {
		return nil
	}
	return s.Revoke(ctx, key, held)
}

func (s *apiServer) Revoke(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	if s.onRelease != nil {
		if err := s.onRelease(); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if l := s.ledgers[key]; l.Pod(held.UID) != nil && l.Pod(held.UID).Token == held.Token {
		s.ledgers[key] = *l.Without(func(uid types.UID) bool { return uid == held.UID })
	}
	return nil
}

// allocated returns the nodes on which the pod holds an allocation.
func (s *apiServer) allocated() string {
	var nodes []string
	for key, l := range s.ledgers {
		if l.Pod("u") != nil {
			nodes = append(nodes, key.Node)
		}
	}
	slices.Sort(nodes)
	return strings.Join(nodes, " ")
}

func TestBind(t *testing.T) {
	unknown := fmt.Errorf("%w: connection lost", binder.ErrOutcomeUnknown)
	for _, tc := range []struct {
		name      string
		given     func(s *apiServer)
		err       string // "": none
		bound     string // the node of the pod afterwards
		allocated string // the nodes of its allocations afterwards
	}{
		{"bound with its allocation", func(*apiServer) {}, "", "a", "a"},
		{"a pod that needs no allocation", func(s *apiServer) { s.pod.Labels = map[string]string{"needs": "nothing"} }, "", "a", ""},
		{"a pod that needs no allocation, and the Binding is lost", func(s *apiServer) {
			s.pod.Labels = map[string]string{"needs": "nothing"}
			s.onBind = func(binder.Binding) error { return unknown }
		}, "it is not known whether the pod was bound: connection lost", "", ""},
		{"too many Bindings", func(s *apiServer) { s.throttled = errors.New("too many pods are being bound") }, "too many pods are being bound", "", ""},
		{"the Binding is rejected, and the allocation cannot be released", func(s *apiServer) {
			s.onBind = func(binder.Binding) error { return errors.New("forbidden") }
			s.onRelease = func() error { return errors.New("no answer") }
		}, "forbidden policy OneUnit: releasing: no answer", "", "a"},
		{"the pod changes once", func(s *apiServer) {
			s.onBind = func(b binder.Binding) error { s.onBind = nil; s.changed(); return s.receive(b) }
		}, "", "a", "a"},
		{"the response is lost", func(s *apiServer) {
			s.onBind = func(b binder.Binding) error { return errors.Join(s.receive(b), unknown) }
		}, "", "a", "a"},
		{"the Binding is lost", func(s *apiServer) { s.onBind = func(binder.Binding) error { return unknown } },
			"the Binding was withdrawn, and the allocations of the pod were released: it is not known whether the pod was bound: connection lost", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newAPIServer()
			tc.given(s)
			err := s.bind(t.Context(), new(oneUnit), s.pod.DeepCopy(), "a")
			if text := strings.ReplaceAll(fmt.Sprint(err), "\n", " "); text != tc.err && (err != nil || tc.err != "") {
				t.Errorf("got error %q, want %q", text, tc.err)
			}
			var bound string
			if s.pod != nil {
				bound = s.pod.Spec.NodeName
			}
			if bound != tc.bound || s.allocated() != tc.allocated {
				t.Errorf("bound to %q with allocations on %q, want %q and %q", bound, s.allocated(), tc.bound, tc.allocated)
			}
		})
	}
}

// The caller may be gone when a Binding fails: its context has ended, and the allocations are released nevertheless.
func TestBindReleasesAllocationsWithoutItsCaller(t *testing.T) {
	for name, outcome := range map[string]error{"rejected": errors.New("forbidden"), "unknown": binder.ErrOutcomeUnknown} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer()
			ctx, cancel := context.WithCancel(t.Context())
			s.onBind = func(binder.Binding) error { cancel(); return outcome }
			if err := s.bind(ctx, new(oneUnit), s.pod.DeepCopy(), "a"); !errors.Is(err, outcome) || s.allocated() != "" {
				t.Errorf("got error %v, and allocations on %q", err, s.allocated())
			}
		})
	}
}

func TestBindingContents(t *testing.T) {
	for _, needs := range []string{"a unit", "nothing"} {
		t.Run(needs, func(t *testing.T) {
			s := newAPIServer()
			s.pod.Labels = map[string]string{"needs": needs}
			var got binder.Binding
			s.onBind = func(b binder.Binding) error { got = b; return nil }
			if err := s.bind(t.Context(), new(oneUnit), s.pod.DeepCopy(), "a"); err != nil {
				t.Fatal(err)
			}
			if got.Namespace != "default" || got.Name != "p" || got.UID != "u" || got.Node != "a" || got.Annotations[decision.Annotation] != "why" {
				t.Errorf("got %+v", got)
			}
			if allocations := needs != "nothing"; (got.Annotations[unit] != "") != allocations || (got.ResourceVersion == "0") != allocations {
				t.Errorf("a pod that needs %s is bound by %+v", needs, got)
			}
		})
	}
}

// Whatever fails, and whenever a Binding arrives that was sent before: a pod is bound only with an allocation on its node, and with the
// annotations of this allocation. Bind returns nil only if the pod is bound. A pod that is not bound holds allocations only if the API server
// has rejected a change of the pod or the release.
func TestBoundPodHasItsAllocation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newAPIServer()
		var late []binder.Binding // sent, and not received yet
		faults := false           // an allocation may be left
		fails := func(what string) bool { return rapid.IntRange(0, 3).Draw(t, what) == 0 }
		p := &oneUnit{unusable: func() bool { return fails("the allocation is unusable") }}
		s.onBind = func(b binder.Binding) error {
			switch rapid.SampledFrom([]string{"received", "rejected", "lost", "response lost", "late", "changed"}).Draw(t, "Binding") {
			case "rejected":
				return errors.New("forbidden")
			case "lost":
				return binder.ErrOutcomeUnknown
			case "response lost":
				_ = s.receive(b)
				return binder.ErrOutcomeUnknown
			case "late":
				late = append(late, b)
				return binder.ErrOutcomeUnknown
			case "changed":
				if s.pod != nil {
					s.changed()
				}
			}
			return s.receive(b)
		}
		receiveLate := func() {
			if len(late) > 0 {
				i := rapid.IntRange(0, len(late)-1).Draw(t, "late Binding")
				_ = s.receive(late[i])
				late = slices.Delete(late, i, i+1)
			}
		}
		s.onTouch = func() error {
			receiveLate()
			if fails("change") {
				faults = true
				return errors.New("no answer")
			}
			return nil
		}
		s.onRelease = func() error {
			if fails("release") {
				faults = true
				return errors.New("no answer")
			}
			return nil
		}
		seen := s.pod.DeepCopy() // as kube-scheduler last saw it
		t.Repeat(map[string]func(*rapid.T){
			"bind": func(t *rapid.T) {
				node := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "node")
				if err := s.bind(context.Background(), p, seen, node); err == nil && (s.pod == nil || s.pod.Spec.NodeName != node) {
					t.Fatalf("Bind to %s returns no error, and the pod is %+v", node, s.pod)
				}
			},
			"a late Binding arrives": func(*rapid.T) { receiveLate() },
			"the watch arrives": func(*rapid.T) {
				if s.pod != nil {
					seen = s.pod.DeepCopy()
				}
			},
			"": func(t *rapid.T) {
				if s.pod.Spec.NodeName == "" {
					if !faults && s.allocated() != "" {
						t.Fatalf("the pod is not bound, and holds allocations on %q", s.allocated())
					}
					return
				}
				l := s.ledgers[snapshot.LedgerKey{Resource: unit, Node: s.pod.Spec.NodeName}]
				if allocation := l.Pod("u"); allocation == nil || allocation.Annotations[unit] != s.pod.Annotations[unit] {
					t.Fatalf("the pod is bound to %s with annotations %v, and has allocation %+v", s.pod.Spec.NodeName, s.pod.Annotations, allocation)
				}
			},
		})
	})
}

func TestAlreadyBound(t *testing.T) {
	deleted := metav1.Now()
	for name, tc := range map[string]struct {
		change func(*corev1.Pod) *corev1.Pod
		bound  bool
		err    string
	}{
		"not bound":                 {func(p *corev1.Pod) *corev1.Pod { return p }, false, "<nil>"},
		"bound to the node":         {func(p *corev1.Pod) *corev1.Pod { p.Spec.NodeName = "a"; return p }, true, "<nil>"},
		"bound to another node":     {func(p *corev1.Pod) *corev1.Pod { p.Spec.NodeName = "b"; return p }, false, `pod default/p is already bound to node "b"`},
		"being deleted":             {func(p *corev1.Pod) *corev1.Pod { p.DeletionTimestamp = &deleted; return p }, false, "pod default/p is being deleted"},
		"bound and being deleted":   {func(p *corev1.Pod) *corev1.Pod { p.Spec.NodeName, p.DeletionTimestamp = "a", &deleted; return p }, true, "<nil>"},
		"gone":                      {func(*corev1.Pod) *corev1.Pod { return nil }, false, "pod default/p with UID u does not exist"},
		"another pod with its name": {func(p *corev1.Pod) *corev1.Pod { p.UID, p.Spec.NodeName = "v", "a"; return p }, false, "pod default/p with UID u does not exist"},
	} {
		bound, err := binder.AlreadyBound("default", "p", "u", "a", tc.change(newPod()))
		if bound != tc.bound || fmt.Sprint(err) != tc.err {
			t.Errorf("%s: %v, %v; want %v, %s", name, bound, err, tc.bound, tc.err)
		}
	}
}

// A pod that is being bound to a node is not bound to another one before the API server has made the first Binding invalid.
func TestResolve(t *testing.T) {
	for name, tc := range map[string]struct {
		assumed string
		change  func(*apiServer)
		failed  string // "": no error
		touched bool
	}{
		"not decided":               {"", nil, "", false},
		"decided for the same node": {"a", nil, "", false},
		"decided for another node":  {"b", nil, "", true},
		"bound to that node":        {"b", func(s *apiServer) { s.pod.Spec.NodeName = "b" }, `pod default/p is already bound to node "b"`, true},
		"bound to this node":        {"b", func(s *apiServer) { s.pod.Spec.NodeName = "a" }, "", true},
		"gone":                      {"b", func(s *apiServer) { s.pod = nil }, "pod default/p with UID u does not exist", false},
		"no response": {"b", func(s *apiServer) { s.onTouch = func() error { return errors.New("no response") } },
			`pod default/p is being bound to node "b", and that cannot be ended now: no response`, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer()
			pod := s.pod.DeepCopy()
			if s.assumed = tc.assumed; tc.change != nil {
				tc.change(s)
			}
			b := binder.Binder{Cluster: s}
			current, err := b.Resolve(t.Context(), pod, "a")
			if fmt.Sprint(err) != cmp.Or(tc.failed, "<nil>") {
				t.Fatalf("got error %v, want %s", err, tc.failed)
			}
			if touched := s.pod != nil && s.pod.ResourceVersion != pod.ResourceVersion; touched != tc.touched {
				t.Errorf("the pod was changed: %v, want %v", touched, tc.touched)
			}
			if err == nil && current.ResourceVersion != s.pod.ResourceVersion {
				t.Errorf("got version %s of the pod, want %s", current.ResourceVersion, s.pod.ResourceVersion)
			}
		})
	}
}

// A reservation says what the pod holds, whether it was allocated now or by an earlier attempt.
func TestReservationHasTheAmounts(t *testing.T) {
	s := newAPIServer()
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "OneUnit", Policy: new(oneUnit), Weight: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	b := binder.Binder{Engine: e, Cluster: s, Ledgers: s, Awaited: new(binder.Awaited)}
	for _, attempt := range []string{"first", "second"} {
		held, err := b.Reserve(t.Context(), s.pod, binder.Target{View: s.view, Node: s.view.Node("a")})
		if got := held.Record(); err != nil || len(got) != 1 || got[0].Resource == "" || got[0].Unit == "" || got[0].Amount != 1 {
			t.Errorf("the %s attempt holds %v, %v; want an amount of 1", attempt, got, err)
		}
	}
}
