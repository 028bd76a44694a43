package binder_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// reserver is a policy that reserves the configured units from one ledger for each of its resources.
type reserver struct {
	name        string
	resources   []string
	allocations map[string]string
	verdict     policy.Verdict
	err         error
	panics      any // where it panics: "ledgers" or "reserve"
}

func (r *reserver) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return nil, nil
}

func (r *reserver) Ledgers(*corev1.Pod, *snapshot.Node) ([]snapshot.LedgerKey, error) {
	if r.panics == "ledgers" {
		panic("boom")
	}
	var keys []snapshot.LedgerKey
	for _, resource := range r.resources {
		keys = append(keys, snapshot.LedgerKey{Resource: resource})
	}
	return keys, r.err
}

func (r *reserver) Reserve(ask policy.ReserveRequest) (policy.Allocation, policy.Verdict) {
	if r.panics == "reserve" {
		panic("boom")
	}
	if ask.Pod == nil || ask.Node == nil || ask.Ledger == nil || ask.At.IsZero() {
		panic("something is missing")
	}
	return policy.Allocation{Annotations: r.allocations, After: []types.UID{types.UID("before-" + r.name)}}, r.verdict
}

// unrelated is a policy that allocates nothing.
type unrelated struct{}

func (unrelated) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return nil, nil
}

// diary is Ledgers that record their calls.
type diary struct {
	entries []string // +resource claims, -resource releases
	failing map[string]error
}

func (d *diary) Allocate(_ context.Context, key snapshot.LedgerKey, pod *corev1.Pod, node string, choose engine.Choose) (snapshot.LedgerPod, error) {
	allocation, err := choose(&snapshot.Ledger{Resource: key.Resource}, time.Unix(1, 0))
	if err != nil {
		return snapshot.LedgerPod{}, err
	}
	d.entries = append(d.entries, "+"+key.Resource)
	return snapshot.LedgerPod{UID: pod.UID, Node: node, Annotations: allocation.Annotations}, d.failing["+"+key.Resource]
}

func (d *diary) Release(_ context.Context, key snapshot.LedgerKey, _ snapshot.LedgerPod) error {
	d.entries = append(d.entries, "-"+key.Resource)
	return d.failing["-"+key.Resource]
}

func (d *diary) Revoke(_ context.Context, key snapshot.LedgerKey, _ snapshot.LedgerPod) error {
	d.entries = append(d.entries, "!"+key.Resource)
	return d.failing["!"+key.Resource]
}

func TestReserve(t *testing.T) {
	used := &policy.Reason{Code: "Used", Text: "no device has enough left"}
	errServer := errors.New("the API server does not respond")
	gpu := reserver{name: "GPU", resources: []string{"gpu"}, allocations: map[string]string{"gpu": "0"}}
	license := reserver{name: "License", resources: []string{"a", "b"}, allocations: map[string]string{"license": "7", "shared": "x"}}
	other := reserver{name: "Other", resources: []string{"other"}}
	nothing := reserver{name: "Nothing"}

	tests := []struct {
		name      string
		policies  []reserver
		failing   map[string]error
		want      map[string]string
		err       string // the whole text; "": no error
		policyErr string // the policy of the *PolicyError in it; "": none
		diary     string
	}{
		{name: "no reserver"},
		{name: "one", policies: []reserver{gpu}, want: map[string]string{"gpu": "0"}, diary: "+gpu"},
		{name: "one that hands out nothing", policies: []reserver{nothing}},
		{
			name: "several", policies: []reserver{gpu, nothing, license},
			want: map[string]string{"gpu": "0", "license": "7", "shared": "x"}, diary: "+gpu +a +b",
		},
		{
			name:     "several that agree about an annotation",
			policies: []reserver{license, with(gpu, func(r *reserver) { r.allocations = map[string]string{"gpu": "0", "shared": "x"} })},
			want:     map[string]string{"gpu": "0", "license": "7", "shared": "x"}, diary: "+a +b +gpu",
		},
		{
			name:     "the first has not enough",
			policies: []reserver{with(gpu, func(r *reserver) { r.verdict.Reason = used }), license},
			err:      "node n: policy GPU: no device has enough left", policyErr: "GPU",
		},
		{
			name:     "the last has not enough: the others are released, the last first, but not it",
			policies: []reserver{gpu, license, with(other, func(r *reserver) { r.verdict.Reason = used })},
			err:      "node n: policy Other: no device has enough left", policyErr: "Other", diary: "+gpu +a +b -b -a -gpu",
		},
		{
			name: "a ledger that does not answer leaves open what is allocated", policies: []reserver{gpu, license},
			failing: map[string]error{"+b": errServer},
			err:     "node n: the API server does not respond", diary: "+gpu +a +b -a -gpu",
		},
		{
			name: "a policy that cannot say which ledgers", policies: []reserver{gpu, with(license, func(r *reserver) { r.err = errors.New("bad annotation") })},
			err: "policy License: bad annotation", policyErr: "License",
		},
		{
			name: "a panic", policies: []reserver{gpu, with(license, func(r *reserver) { r.panics = "ledgers" })},
			err: "policy License: panic: boom", policyErr: "License",
		},
		{
			name: "a panic while choosing", policies: []reserver{gpu, with(license, func(r *reserver) { r.panics = "reserve" })},
			err: "node n: policy License: panic: boom", policyErr: "License", diary: "+gpu -gpu",
		},
		{
			name:     "two that disagree about an annotation: neither keeps its allocation",
			policies: []reserver{license, with(gpu, func(r *reserver) { r.allocations = map[string]string{"gpu": "0", "shared": "y"} })},
			err:      `policy GPU: annotation "shared" is already set to another value by policy License`, policyErr: "GPU",
			diary: "+a +b +gpu -gpu -b -a",
		},
		{
			name: "two that hand out the same", policies: []reserver{gpu, with(gpu, func(r *reserver) { r.name = "Other" })},
			err: "policy Other: it allocates gpu, and so does policy GPU", policyErr: "Other",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			members := []engine.WeightedPolicy{{Name: "Unrelated", Policy: unrelated{}}}
			for _, r := range tt.policies {
				// A policy that may be ignored in filter and score must still make its allocations.
				members = append(members, engine.WeightedPolicy{Name: r.name, Policy: &r, FailurePolicy: policy.Ignore})
			}
			e := newEngine(t, members...)
			if got, want := e.Reserves(), len(tt.policies) > 0; got != want {
				t.Errorf("Reserves is %v", got)
			}
			d := &diary{failing: tt.failing}
			reservation, err := reserve(t.Context(), e, d)
			if got := strings.Join(d.entries, " "); got != tt.diary {
				t.Errorf("the ledgers have calls %q, want %q", got, tt.diary)
			}
			if tt.err != "" {
				if err == nil || err.Error() != tt.err || len(reservation.Held) > 0 {
					t.Fatalf("reservation %v, error %v, want %s", reservation, err, tt.err)
				}
				failure := new(engine.PolicyError)
				if errors.As(err, &failure) != (tt.policyErr != "") || failure.Policy != tt.policyErr {
					t.Errorf("got an error of policy %q, want %q", failure.Policy, tt.policyErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, reservation.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if after, held, want := len(reservation.After()), len(reservation.Held), len(d.entries); after != want || held != want {
				t.Errorf("%d allocations, and %d pods before, want %d", held, after, want)
			}
		})
	}
}

func newEngine(t *testing.T, policies ...engine.WeightedPolicy) *engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Options{Policies: policies})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// reserve makes the allocations of a pod on the node n.
func reserve(ctx context.Context, e *engine.Engine, ledgers engine.Ledgers) (engine.Reservation, error) {
	b := binder.Binder{Engine: e, Ledgers: ledgers}
	node := snapshot.NewNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	return b.Reserve(ctx, newPod(), binder.Target{View: new(snapshot.View), Node: node})
}

func with(r reserver, change func(*reserver)) reserver {
	change(&r)
	return r
}

func TestReserveWithoutLedgers(t *testing.T) {
	e := newEngine(t, engine.WeightedPolicy{Name: "GPU", Policy: &reserver{resources: []string{"gpu"}}})
	_, err := reserve(t.Context(), e, nil)
	if want := "policy GPU: it allocates resources, but there are no ledgers for its allocations"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
