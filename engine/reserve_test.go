package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// reserver is a policy that hands out what it is told to and keeps a diary, which
// it may share with others.
type reserver struct {
	name    string
	claims  map[string]string
	verdict policy.Verdict
	err     error
	panics  any

	releaseErr    error
	releasePanics any
	diary         *[]string
	atReserve     func()
	atRelease     func(ctx context.Context)
}

func (r *reserver) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return nil, nil
}

func (r *reserver) Reserve(_ context.Context, pod *corev1.Pod, n *snapshot.Node) (policy.Claim, policy.Verdict, error) {
	*r.diary = append(*r.diary, fmt.Sprintf("%s reserves for %s on %s", r.name, pod.UID, n.Name))
	if r.atReserve != nil {
		r.atReserve()
	}
	if r.panics != nil {
		panic(r.panics)
	}
	return policy.Claim{Annotations: r.claims}, r.verdict, r.err
}

func (r *reserver) Release(ctx context.Context, pod *corev1.Pod, n *snapshot.Node, claim policy.Claim) error {
	*r.diary = append(*r.diary, fmt.Sprintf("%s releases %v for %s on %s", r.name, claim.Annotations, pod.UID, n.Name))
	if r.atRelease != nil {
		r.atRelease(ctx)
	}
	if r.releasePanics != nil {
		panic(r.releasePanics)
	}
	return r.releaseErr
}

func TestReserve(t *testing.T) {
	used := &policy.Reason{Code: "Used", Text: "no device has enough left"}
	errServer := errors.New("the API server does not answer")
	gpu := reserver{name: "GPU", claims: map[string]string{"gpu": "0"}}
	licence := reserver{name: "Licence", claims: map[string]string{"licence": "7", "shared": "x"}}
	nothing := reserver{name: "Nothing"}

	tests := []struct {
		name      string
		policies  []reserver
		want      map[string]string
		err       string // the whole text; "" is none
		policyErr string // the policy whose *PolicyError it holds; "" is none
		diary     string // one word for each call: +GPU reserves, -GPU releases
	}{
		{"no reserver", nil, nil, "", "", ""},
		{"one", []reserver{gpu}, map[string]string{"gpu": "0"}, "", "", "+GPU"},
		{"one that hands out nothing", []reserver{nothing}, nil, "", "", "+Nothing"},
		{"several", []reserver{gpu, nothing, licence}, map[string]string{"gpu": "0", "licence": "7", "shared": "x"}, "", "", "+GPU +Nothing +Licence"},
		{
			"several that agree about an annotation",
			[]reserver{licence, with(gpu, func(r *reserver) { r.claims = map[string]string{"gpu": "0", "shared": "x"} })},
			map[string]string{"gpu": "0", "licence": "7", "shared": "x"}, "", "", "+Licence +GPU",
		},
		{
			"the first finds nothing",
			[]reserver{with(gpu, func(r *reserver) { r.verdict.Reason = used }), licence}, nil,
			"node n: no device has enough left (policy GPU)", "", "+GPU",
		},
		{
			"the last finds nothing: the others are released, the last first, but not it",
			[]reserver{gpu, nothing, with(licence, func(r *reserver) { r.verdict.Reason = used })}, nil,
			"node n: no device has enough left (policy Licence)", "", "+GPU +Nothing +Licence -Nothing -GPU",
		},
		{
			"an error leaves open what is claimed",
			[]reserver{gpu, with(licence, func(r *reserver) { r.err = errServer })}, nil,
			"policy Licence: the API server does not answer", "Licence", "+GPU +Licence -GPU",
		},
		{
			"an error counts before a verdict",
			[]reserver{with(licence, func(r *reserver) { r.err, r.verdict.Reason = errServer, used })}, nil,
			"policy Licence: the API server does not answer", "Licence", "+Licence",
		},
		{
			"a panic",
			[]reserver{gpu, with(licence, func(r *reserver) { r.panics = "boom" }), nothing}, nil,
			"policy Licence: panic: boom", "Licence", "+GPU +Licence -GPU",
		},
		{
			"two that disagree about an annotation: neither keeps its claim",
			[]reserver{licence, nothing, with(gpu, func(r *reserver) { r.claims = map[string]string{"gpu": "0", "shared": "y"} })}, nil,
			`policy GPU: annotation "shared" is written by policy Licence too, with another value`, "GPU",
			"+Licence +Nothing +GPU -GPU -Nothing -Licence",
		},
		{
			"releasing fails: all the others are released, and both errors told",
			[]reserver{
				with(gpu, func(r *reserver) { r.releaseErr = errServer }),
				with(nothing, func(r *reserver) { r.releasePanics = "boom" }),
				with(licence, func(r *reserver) { r.verdict.Reason = used }),
			}, nil,
			"node n: no device has enough left (policy Licence)\npolicy Nothing: panic: boom\npolicy GPU: releasing: the API server does not answer",
			"Nothing", "+GPU +Nothing +Licence -Nothing -GPU",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var diary []string
			members := []engine.Member{{Name: "Unrelated", Policy: &fake{}}}
			for _, r := range tt.policies {
				r.diary = &diary
				// A policy that may be left out of judging still has to claim.
				members = append(members, engine.Member{Name: r.name, Policy: &r, OnError: engine.Skip})
			}
			e := newEngine(t, members...)
			reservation, err := e.Reserve(t.Context(), podOf("u", "1"), snapshot.NewNode(object("n")))
			if got := short(diary); got != tt.diary {
				t.Errorf("calls %q, want %q", got, tt.diary)
			}
			if tt.err != "" {
				if err == nil || err.Error() != tt.err || reservation != nil {
					t.Fatalf("reservation %v, error %v, want %s", reservation, err, tt.err)
				}
				failure := new(engine.PolicyError)
				if errors.As(err, &failure) != (tt.policyErr != "") || failure.Policy != tt.policyErr {
					t.Errorf("the error is one of policy %q, want %q", failure.Policy, tt.policyErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, reservation.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}

func with(r reserver, change func(*reserver)) reserver {
	change(&r)
	return r
}

// short is a diary in one word for each entry.
func short(diary []string) string {
	var words []string
	for _, entry := range diary {
		name, verb, _ := strings.Cut(entry, " ")
		sign := "+"
		if strings.HasPrefix(verb, "releases") {
			sign = "-"
		}
		words = append(words, sign+name)
	}
	return strings.Join(words, " ")
}

// Release gives each policy its own claim back, the last first, and goes on after
// a failure.
func TestRelease(t *testing.T) {
	var diary []string
	e := newEngine(t,
		engine.Member{Name: "A", Policy: &reserver{name: "A", claims: map[string]string{"a": "1"}, diary: &diary}},
		engine.Member{Name: "B", Policy: &reserver{name: "B", claims: map[string]string{"b": "2"}, releaseErr: errors.New("no answer"), diary: &diary}},
		engine.Member{Name: "C", Policy: &reserver{name: "C", releasePanics: errors.New("boom"), diary: &diary}},
	)
	r, err := e.Reserve(t.Context(), podOf("u", "1"), snapshot.NewNode(object("n")))
	if err != nil {
		t.Fatal(err)
	}
	diary = diary[:0]
	err = r.Release(t.Context())
	if got, want := fmt.Sprint(err), "policy C: panic: boom\npolicy B: releasing: no answer"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
	want := []string{"C releases map[] for u on n", "B releases map[b:2] for u on n", "A releases map[a:1] for u on n"}
	if !slices.Equal(diary, want) {
		t.Errorf("calls %q, want %q", diary, want)
	}
}

// When the request ends while claims are being made, what was claimed is released
// all the same, in bounded time.
func TestReserveRollsBackAfterCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var diary []string
	e := newEngine(t,
		engine.Member{Name: "A", Policy: &reserver{name: "A", diary: &diary, atRelease: func(ctx context.Context) {
			if ctx.Err() != nil {
				t.Errorf("the release is given a context that has ended: %v", ctx.Err())
			}
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("the release may take for ever")
			}
		}}},
		engine.Member{Name: "B", Policy: &reserver{name: "B", diary: &diary, atReserve: cancel, err: context.Canceled}},
	)
	_, err := e.Reserve(ctx, podOf("u", "1"), snapshot.NewNode(object("n")))
	if !errors.Is(err, context.Canceled) || short(diary) != "+A +B -A" {
		t.Errorf("error %v after %s", err, short(diary))
	}
}
