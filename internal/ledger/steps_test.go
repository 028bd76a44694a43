package ledger

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

var update = flag.Bool("update", false, "rewrite the effects in testdata")

var testKey = snapshot.LedgerKey{Resource: "gpu", Node: "a"}

// testErrors are the errors of the API server by their names in testdata.
var testErrors = map[string]error{
	"lost":         errors.New("lost"),
	"conflict":     apierrors.NewConflict(Resource.GroupResource(), "l", errors.New("it has changed")),
	"exists":       apierrors.NewAlreadyExists(Resource.GroupResource(), "l"),
	"notFound":     apierrors.NewNotFound(Resource.GroupResource(), "l"),
	"invalid":      apierrors.NewInvalid(Kind.GroupKind(), "l", nil),
	"notServed":    apierrors.NewGenericServerResponse(http.StatusNotFound, "post", Resource.GroupResource(), "", "", 0, true),
	"notSupported": apierrors.NewMethodNotSupported(Resource.GroupResource(), "create"),
	"forbidden":    apierrors.NewForbidden(Resource.GroupResource(), "l", errors.New("RBAC")),
	"unauthorized": apierrors.NewUnauthorized("who"),
	"badRequest":   apierrors.NewBadRequest("bad"),
	"busy":         apierrors.NewTooManyRequests("busy", 1),
}

// nameOf is the name of an error in testdata.
func nameOf(err error) string {
	for name, known := range testErrors {
		if errors.Is(err, known) {
			if errors.Is(err, ErrNotServed) {
				return "ErrNotServed"
			}
			return name
		}
	}
	return err.Error()
}

// chooseAmount claims from the only unit, which has a capacity of 10.
func chooseAmount(amount int64) func(*snapshot.Ledger, time.Time) (policy.Claim, error) {
	return func(l *snapshot.Ledger, at time.Time) (policy.Claim, error) {
		held := slices.ContainsFunc(l.Pods, func(p snapshot.LedgerPod) bool { return p.At.Equal(at) })
		switch {
		case held && amount == 0:
			return policy.Claim{}, errors.New("unhealthy")
		case !held && l.Unit("0").Used()+amount > 10:
			return policy.Claim{}, errors.New("no room")
		}
		return policy.Claim{Units: []policy.Capacity{{Unit: "0", Capacity: 10}}, Amounts: []policy.Amount{{Unit: "0", Amount: amount}}}, nil
	}
}

func claimOf(pod, token string, amount int64) operation {
	return operation{claim: &claimOperation{pod: snapshot.LedgerPod{UID: types.UID(pod), Name: pod, Node: "a", Token: token}, choose: chooseAmount(amount)}}
}

// parseLedger parses a ledger as in testdata, such as "v2 p=4 q=3/token*"; nil for "none".
func parseLedger(t *testing.T, text string) *Object {
	t.Helper()
	words := strings.Fields(text)
	if len(words) == 0 || words[0] == "none" {
		return nil
	}
	o := newObject(testKey)
	version, uid, _ := strings.Cut(strings.TrimPrefix(words[0], "v"), "@")
	generation, err := strconv.Atoi(version)
	if err != nil {
		t.Fatalf("ledger %q: %v", text, err)
	}
	o.ResourceVersion, o.Generation, o.UID = version, int64(generation), types.UID(uid)
	for _, word := range words[1:] {
		if resource, ok := strings.CutPrefix(word, "resource="); ok {
			o.Spec.Resource = resource
			continue
		}
		m := regexp.MustCompile(`^(\w+)=(\d+)(?:/(\w+))?(\*?)$`).FindStringSubmatch(word)
		if m == nil {
			t.Fatalf("ledger %q: %q", text, word)
		}
		amount, _ := strconv.ParseInt(m[2], 10, 64)
		if m[3] == "" {
			m[3] = m[1]
		}
		o.Spec, _ = apply(o.Spec, []operation{claimOf(m[1], m[3], amount)}, time.Unix(0, 0))
		o.Spec.Pods[len(o.Spec.Pods)-1].Shared = m[4] != ""
	}
	o.summarize()
	return o
}

// formatLedger is the reverse of parseLedger.
func formatLedger(o *Object) string {
	if o == nil {
		return "unknown"
	}
	text := "new"
	if o.ResourceVersion != "" {
		text = "v" + o.ResourceVersion
		if o.UID != "" {
			text += "@" + string(o.UID)
		}
	}
	for _, p := range o.Spec.Pods {
		text += fmt.Sprintf(" %s=%d", p.UID, o.Spec.Unit("0").Amount(p.UID))
		if p.Token != string(p.UID) {
			text += "/" + p.Token
		}
		if p.Shared {
			text += "*"
		}
	}
	return text
}

// history drives a queue and its writes as a Keeper does, with the responses of testdata.
type history struct {
	queue       queue
	batch       []*submission
	writing     writing
	cached      *Object
	submissions map[string]*submission // by token
}

// step takes one line of input, and returns its effects.
func (h *history) step(t *testing.T, line string) string {
	t.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	words := strings.Fields(rest)
	switch verb {
	case "claim", "release", "revoke":
		token := words[0]
		if len(words) == 4 {
			token = words[3]
		}
		s := &submission{operation: operation{release: &releaseOperation{types.UID(words[0]), words[len(words)-1], verb == "revoke"}}}
		if verb == "claim" {
			amount, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			s.operation = claimOf(words[0], token, amount)
		}
		h.submissions[token] = s
		h.queue.add(s)
		return h.begin("pending")
	case "withdraw":
		known := h.queue.withdraw(h.submissions[words[0]]).Error()
		return h.begin(known)
	case "cache":
		h.cached = parseLedger(t, rest)
		return ""
	}
	if asked := string(h.writing.request.kind); verb != asked && (verb != "readCache" || asked != "") || !h.queue.writing {
		t.Fatalf("%q responds to no request: the request is %q", line, asked)
	}
	r := response{now: time.Unix(100, 0), cached: h.cached}
	rest, r.ended = strings.CutSuffix(rest, "ended")
	rest = strings.TrimSpace(rest)
	switch r.err = testErrors[rest]; {
	case r.err != nil, verb == "readCache", verb == "pause":
	case verb == "readLedger":
		if r.object = parseLedger(t, rest); r.object == nil {
			r.err = testErrors["notFound"]
		}
	case verb == "putLedger":
		r.object = h.writing.request.object.DeepCopyObject().(*Object)
		r.object.ResourceVersion = strings.TrimPrefix(rest, "v")
		r.object.Generation++
	case verb == "examineClaims":
		for i, e := range h.writing.request.claims {
			pod, words := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: e.claim.UID}}, strings.Fields(rest)
			_, state, _ := strings.Cut(words[i], "=")
			switch e = e.next(nil, nil); state {
			case "gone":
				e = e.next(nil, nil)
			case "unbound":
				e = e.next(pod, nil)
			default:
				e = e.next(nil, testErrors[state])
			}
			r.claims = append(r.claims, e)
		}
	}
	h.writing = h.writing.next(r)
	if h.writing.request.kind != written {
		return h.request()
	}
	var ends []string
	for i, o := range h.writing.outcomes {
		text := "done"
		switch s := h.batch[i].operation; {
		case o.failure != nil:
			text = nameOf(o.failure)
		case o.err != nil && o.held.Token != "":
			text = o.err.Error() + ", holds " + o.held.Token
		case o.err != nil:
			text = o.err.Error()
		case s.claim != nil:
			text = "claimed"
		}
		name := "release"
		if c := h.batch[i].claim; c != nil {
			name = string(c.pod.Token)
		}
		ends = append(ends, name+": "+text)
	}
	if len(h.writing.outcomes) != len(h.batch) {
		t.Fatalf("%d outcomes of %d operations", len(h.writing.outcomes), len(h.batch))
	}
	more := h.queue.wrote(h.writing.object)
	h.batch, h.writing = h.queue.take()
	text := strings.Join(ends, ", ") + "; ledger " + formatLedger(h.queue.written)
	if more {
		text += "; " + h.request()
	}
	return text
}

// begin begins a write if operations wait and there is none.
func (h *history) begin(text string) string {
	if h.queue.writing || len(h.queue.pending) == 0 {
		return text
	}
	h.batch, h.writing = h.queue.take()
	return strings.TrimPrefix(text+"; "+h.request(), "pending; ")
}

// request returns the current request as text.
func (h *history) request() string {
	switch q := h.writing.request; q.kind {
	case readCache:
		return "readCache"
	case putLedger:
		return "putLedger " + formatLedger(q.object)
	case examineClaims:
		text := "examineClaims"
		for _, e := range q.claims {
			text += " " + string(e.claim.UID)
		}
		return text
	default:
		return string(q.kind)
	}
}

// runHistories compares the effects of each line of the histories in the file, behind =>, with those of the step that begin returns for
// each history.
func runHistories(t *testing.T, file string, begin func() func(t *testing.T, line string) string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range archive.Files {
		t.Run(f.Name, func(t *testing.T) {
			step := begin()
			var out strings.Builder
			for _, line := range strings.Split(strings.TrimSpace(string(f.Data)), "\n") {
				input, _, _ := strings.Cut(line, "=>")
				if input = strings.TrimSpace(input); input == "" || strings.HasPrefix(input, "#") {
					fmt.Fprintln(&out, line)
					continue
				}
				if effects := step(t, input); effects == "" {
					fmt.Fprintln(&out, input)
				} else {
					fmt.Fprintf(&out, "%-28s => %s\n", input, effects)
				}
			}
			out.WriteString("\n")
			if archive.Files[i].Data = []byte(out.String()); !*update && out.String() != string(f.Data) {
				t.Errorf("got\n%swant\n%s", out.String(), f.Data)
			}
		})
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWritingHistories(t *testing.T) {
	runHistories(t, "testdata/writing.txtar", func() func(*testing.T, string) string {
		return (&history{queue: queue{key: testKey}, submissions: map[string]*submission{}}).step
	})
}

func TestExaminationHistories(t *testing.T) {
	requests := map[podRequest]string{readCachedPod: "readCachedPod", readPod: "readPod", touchPod: "touchPod", keepClaim: "keepClaim", releaseClaim: "releaseClaim"}
	pods := map[string]*corev1.Pod{
		"none":      nil,
		"other":     {ObjectMeta: metav1.ObjectMeta{UID: "another"}},
		"unbound":   {ObjectMeta: metav1.ObjectMeta{UID: "p"}},
		"bound":     {ObjectMeta: metav1.ObjectMeta{UID: "p"}, Spec: corev1.PodSpec{NodeName: "a"}},
		"elsewhere": {ObjectMeta: metav1.ObjectMeta{UID: "p"}, Spec: corev1.PodSpec{NodeName: "b"}},
		"succeeded": {ObjectMeta: metav1.ObjectMeta{UID: "p"}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}},
	}
	runHistories(t, "testdata/examination.txtar", func() func(*testing.T, string) string {
		var e examination
		return func(t *testing.T, line string) string {
			t.Helper()
			words := strings.Fields(line)
			if words[0] == "claim" {
				age, err := time.ParseDuration(words[1])
				if err != nil {
					t.Fatal(err)
				}
				o := parseLedger(t, "v1 p=4")
				e = examination{ledger: &o.Spec, claim: &o.Spec.Pods[0], age: age, limit: 5 * time.Minute}
				switch words[2] {
				case "pool":
					o.Spec.Node = ""
				case "write":
					e.limit = math.MaxInt64
				}
				return requests[e.request]
			}
			pod, known := pods[words[1]]
			err := testErrors[words[1]]
			if words[0] != requests[e.request] || !known && err == nil {
				t.Fatalf("%q responds to no request: the request is %q", line, requests[e.request])
			}
			if e = e.next(pod, err); e.err != nil {
				return "keepClaim, which needs the permission to " + string(e.request) + ": " + nameOf(e.err)
			}
			return strings.TrimSpace(requests[e.request] + " " + e.reason)
		}
	})
}

// A response without a request is a defect of the caller.
func TestResponsesWithoutRequests(t *testing.T) {
	o := parseLedger(t, "v1 p=4")
	for name, f := range map[string]func(){
		"a write that has ended":       func() { writing{request: request{kind: written}}.next(response{}) },
		"an examination that keeps":    func() { examination{ledger: &o.Spec, claim: &o.Spec.Pods[0], request: keepClaim}.next(nil, nil) },
		"an examination that releases": func() { examination{ledger: &o.Spec, claim: &o.Spec.Pods[0], request: releaseClaim}.next(nil, nil) },
		"an examination that has failed": func() {
			examination{ledger: &o.Spec, claim: &o.Spec.Pods[0], request: readPod, err: errors.New("lost")}.next(nil, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

// A step changes nothing but its result: a state can be kept, and continued in two ways.
func TestStepsChangeNoEarlierState(t *testing.T) {
	base, now := parseLedger(t, "v1 q=3 r=2"), time.Unix(100, 0)
	w := writing{key: testKey, object: base}
	for i := range 5 {
		w.operations = append(w.operations, claimOf(fmt.Sprint(i), fmt.Sprint(i), 1))
	}
	invalid := response{now: now, err: testErrors["invalid"]}
	w = w.next(response{now: now}).next(invalid).next(response{now: now, object: base}).next(invalid)
	for range 3 { // one by one
		w = w.next(response{now: now}).next(response{now: now, err: testErrors["forbidden"]})
	}
	w = w.next(response{now: now})
	written, failed := w.next(response{object: parseLedger(t, "v2")}), w.next(response{err: testErrors["forbidden"]})
	if formatLedger(base) != "v1 q=3 r=2" {
		t.Errorf("the first ledger is %s", formatLedger(base))
	}
	if len(w.outcomes) != 3 || len(written.outcomes) != 4 || written.outcomes[3].failure != nil || len(failed.outcomes) != 4 || failed.outcomes[3].failure == nil {
		t.Errorf("outcomes %+v, then %+v or %+v", w.outcomes, written.outcomes, failed.outcomes)
	}
}
