package ledger

import (
	"errors"
	"flag"
	"fmt"
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

// chooseAmount allocates from the only unit, which has a capacity of 10.
func chooseAmount(amount int64) func(*snapshot.Ledger, time.Time) (policy.Allocation, error) {
	return func(l *snapshot.Ledger, at time.Time) (policy.Allocation, error) {
		held := slices.ContainsFunc(l.Pods, func(p snapshot.LedgerPod) bool { return p.At.Equal(at) })
		switch {
		case held && amount == 0:
			return policy.Allocation{}, errors.New("unhealthy")
		case !held && l.Unit("0").Used()+amount > 10:
			return policy.Allocation{}, errors.New("no room")
		}
		return policy.Allocation{Units: []policy.Capacity{{Unit: "0", Capacity: 10}}, Amounts: []policy.Amount{{Unit: "0", Amount: amount}}}, nil
	}
}

func allocationOf(pod, token string, amount int64) Operation {
	return Operation{pod: snapshot.LedgerPod{UID: types.UID(pod), Name: pod, Node: "a", Token: token}, choose: chooseAmount(amount)}
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
		o.Spec, _ = apply(o.Spec, []Operation{allocationOf(m[1], m[3], amount)}, time.Unix(0, 0))
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
	queue       Queue
	batch       []*Submission
	writing     Writing
	cached      *Object
	submissions map[string]*Submission // by token
}

// step takes one line of input, and returns its effects.
func (h *history) step(t *testing.T, line string) string {
	t.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	words := strings.Fields(rest)
	switch verb {
	case "allocation", "release", "revoke":
		token := words[0]
		if len(words) == 4 {
			token = words[3]
		}
		s := &Submission{Operation: ReleaseOf(snapshot.LedgerPod{UID: types.UID(words[0]), Token: words[len(words)-1]}, verb == "revoke")}
		if verb == "allocation" {
			amount, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			s.Operation = allocationOf(words[0], token, amount)
		}
		h.submissions[token] = s
		h.queue.Add(s)
		return h.begin("pending")
	case "withdraw":
		known := h.queue.Withdraw(h.submissions[words[0]]).Error()
		return h.begin(known)
	case "cache":
		h.cached = parseLedger(t, rest)
		return ""
	}
	if asked := string(h.writing.Request.Kind); verb != asked && (verb != "readCache" || asked != "") || !h.queue.writing {
		t.Fatalf("%q responds to no request: the request is %q", line, asked)
	}
	r := Response{Now: time.Unix(100, 0), Cached: h.cached}
	rest, r.Ended = strings.CutSuffix(rest, "ended")
	rest = strings.TrimSpace(rest)
	switch r.Err = testErrors[rest]; {
	case r.Err != nil, verb == "readCache", verb == "pause":
	case verb == "readLedger":
		if r.Object = parseLedger(t, rest); r.Object == nil {
			r.Err = testErrors["notFound"]
		}
	case verb == "putLedger":
		r.Object = h.writing.Request.Object.DeepCopyObject().(*Object)
		r.Object.ResourceVersion = strings.TrimPrefix(rest, "v")
		r.Object.Generation++
	case verb == "examineAllocations":
		for i, e := range h.writing.Request.Allocations {
			pod, words := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: e.Allocation.UID}}, strings.Fields(rest)
			_, state, _ := strings.Cut(words[i], "=")
			switch e = e.Next(nil, nil); state {
			case "gone":
				e = e.Next(nil, nil)
			case "unbound":
				e = e.Next(pod, nil)
			default:
				e = e.Next(nil, testErrors[state])
			}
			r.Allocations = append(r.Allocations, e)
		}
	}
	h.writing = h.writing.Next(r)
	if h.writing.Request.Kind != Written {
		return h.request()
	}
	var ends []string
	for i, o := range h.writing.Outcomes {
		text := "done"
		switch s := h.batch[i].Operation; {
		case o.Failure != nil:
			text = nameOf(o.Failure)
		case o.Err != nil && o.Held.Token != "":
			text = o.Err.Error() + ", holds " + o.Held.Token
		case o.Err != nil:
			text = o.Err.Error()
		case s.choose != nil:
			text = "allocated"
		}
		name := "release"
		if o := h.batch[i].Operation; o.choose != nil {
			name = o.pod.Token
		}
		ends = append(ends, name+": "+text)
	}
	if len(h.writing.Outcomes) != len(h.batch) {
		t.Fatalf("%d outcomes of %d operations", len(h.writing.Outcomes), len(h.batch))
	}
	more := h.queue.Wrote(h.writing)
	h.batch, h.writing = h.queue.Take()
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
	h.batch, h.writing = h.queue.Take()
	return strings.TrimPrefix(text+"; "+h.request(), "pending; ")
}

// request returns the current request as text.
func (h *history) request() string {
	switch q := h.writing.Request; q.Kind {
	case ReadCache:
		return "readCache"
	case PutLedger:
		return "putLedger " + formatLedger(q.Object)
	case ExamineAllocations:
		text := "examineAllocations"
		for _, e := range q.Allocations {
			text += " " + string(e.Allocation.UID)
		}
		return text
	default:
		return string(q.Kind)
	}
}

// runHistories compares the effects of each line of the histories in the file, behind =>, with
// those of the step that begin returns for each history.
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
		return (&history{queue: Queue{Key: testKey}, submissions: map[string]*Submission{}}).step
	})
}
