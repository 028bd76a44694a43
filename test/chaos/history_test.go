package chaos

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/controlplane"
)

// auditPolicy makes the API server record the requests of which a history consists: when each arrived, when it was
// done, and its content. The API server writes this log itself, so it does not depend on what replicas believe.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted]
omitManagedFields: true
rules:
- {level: RequestResponse, verbs: [create, update, patch, delete, deletecollection], resources: [{group: outboard.dev, resources: [ledgers]}]}
- {level: RequestResponse, verbs: [create], resources: [{resources: [pods/binding]}]}
- {level: RequestResponse, verbs: [update, patch], resources: [{resources: [pods/status]}]}
- {level: RequestResponse, verbs: [create, delete], resources: [{resources: [pods]}]}
- {level: Metadata, verbs: [patch], resources: [{resources: [pods/resize]}]}
- {level: None}
`

// auditLog is the audit log of an API server.
type auditLog struct{ policy, file string }

// newAuditLog returns a log for an API server that has yet to be started, and is stopped by a later cleanup of the
// test.
func newAuditLog(t *testing.T) auditLog {
	t.Helper()
	dir := t.TempDir()
	l := auditLog{policy: filepath.Join(dir, "policy.yaml"), file: filepath.Join(dir, "audit.log")}
	if err := os.WriteFile(l.policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

// options make the API server write the log, into one file, and each record before the request continues.
func (l auditLog) options() controlplane.Options {
	return controlplane.Options{APIServerArgs: []string{
		"--audit-policy-file=" + l.policy, "--audit-log-path=" + l.file, "--audit-log-mode=blocking", "--audit-log-maxsize=100000",
	}}
}

// record is one record of the log, with the API server's names.
type record struct {
	AuditID, Stage, Verb                     string
	ObjectRef                                struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus                           struct{ Code int }
	RequestObject, ResponseObject            json.RawMessage
	RequestReceivedTimestamp, StageTimestamp time.Time
}

// unknown reports whether the request may take effect later or never: the API server ended, or gave up waiting.
func (r *record) unknown() bool { return r.Stage == "RequestReceived" || r.ResponseStatus.Code >= 500 }

func (r *record) rejected() bool { return !r.unknown() && r.ResponseStatus.Code >= 300 }

// done is when the effect of the request was over; forever if that is unknown.
func (r *record) done(forever int64) int64 {
	if r.unknown() {
		return forever
	}
	return r.StageTimestamp.UnixMicro()
}

func (r *record) pod() string { return r.ObjectRef.Namespace + "/" + r.ObjectRef.Name }

// ends reports whether the request ends a pod, or may: the content of one without a response is unknown. An evicted pod runs until its
// kubelet deletes it.
func (r *record) ends() bool {
	var pod corev1.Pod
	switch {
	case r.ObjectRef.Resource != "pods" || r.Verb == "create" || r.ObjectRef.Subresource == "resize":
		return false
	case r.Verb == "delete":
		return (!r.rejected() || r.ResponseStatus.Code == http.StatusNotFound) && !r.evicts()
	case r.unknown():
		return true
	}
	return json.Unmarshal(r.ResponseObject, &pod) == nil && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
}

// evicts reports whether the request has begun to end a pod that is on a node, and that its kubelet is to delete.
func (r *record) evicts() bool {
	var pod corev1.Pod
	return r.ObjectRef.Resource == "pods" && r.Verb == "delete" && !r.unknown() && !r.rejected() &&
		json.Unmarshal(r.ResponseObject, &pod) == nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds > 0
}

// binding returns the Binding that the request creates; nil if it creates none or its content is unknown.
func (r *record) binding() (b *corev1.Binding) {
	if r.ObjectRef.Subresource == "binding" && !r.rejected() && r.RequestObject != nil {
		b = new(corev1.Binding)
		if json.Unmarshal(r.RequestObject, b) != nil {
			return nil
		}
	}
	return b
}

// parseLog returns the last record of each request, in order of their arrival. The last line may be incomplete.
func parseLog(log []byte) ([]*record, error) {
	byID := map[string]*record{}
	for line := range bytes.Lines(log) {
		r := new(record)
		if err := json.Unmarshal(line, r); err != nil {
			if !bytes.HasSuffix(line, []byte("\n")) {
				break
			}
			return nil, fmt.Errorf("audit log: %w: %s", err, line)
		}
		byID[r.AuditID] = r
	}
	return slices.SortedFunc(maps.Values(byID), func(a, b *record) int {
		return cmp.Or(a.RequestReceivedTimestamp.Compare(b.RequestReceivedTimestamp), cmp.Compare(a.AuditID, b.AuditID))
	}), nil
}

// versions are the contents of one ledger that responses show, by resourceVersion. 0 is the ledger before its creation.
type versions map[int64]*ledger.Object

// before returns the content at the version or, if no response shows it, at the latest known version before it.
func (v versions) before(version int64) *ledger.Object {
	latest := int64(0)
	for known := range v {
		if known <= version {
			latest = max(latest, known)
		}
	}
	return cmp.Or(v[latest], new(ledger.Object))
}

func versionOf(o *ledger.Object) int64 {
	version, err := strconv.ParseInt(cmp.Or(o.ResourceVersion, "0"), 10, 64)
	if err != nil {
		panic(err) // the API server compares them as numbers
	}
	return version
}

// observation is what the API server showed of ledgers at some time between two.
type observation struct {
	ledgers     []ledger.Object
	after, till time.Time
}

// history is what was done to a ledger, and what it must be equivalent to.
type history struct {
	operations []porcupine.Operation
	model      porcupine.Model
}

// histories returns the history of each ledger, by its name. The observations are in order of time, the last one at the
// end of all histories. All records arrived before now.
func histories(records []*record, observations []observation, now time.Time) (map[string]history, error) {
	b := builder{
		known: map[string]versions{}, named: map[string]map[string]bool{}, forever: now.UnixMicro(), lost: map[string]int64{},
		all: map[string][]porcupine.Operation{}, requested: requests(records),
	}
	for _, r := range records {
		if err := b.collect(r); err != nil {
			return nil, err
		}
	}
	for _, seen := range observations {
		for i := range seen.ledgers {
			if err := b.observe(&seen.ledgers[i], seen.after.UnixMicro(), seen.till.UnixMicro()); err != nil {
				return nil, err
			}
		}
	}
	for _, r := range records {
		if err := b.add(r); err != nil {
			return nil, err
		}
	}
	all := map[string]history{}
	for name, operations := range b.all {
		all[name] = history{operations, modelOf(&b.known[name][0].Spec)}
	}
	return all, nil
}

// builder makes histories of records.
type builder struct {
	known   map[string]versions
	named   map[string]map[string]bool // pods that have ever had an allocation, by ledger
	forever int64                      // after all that is known, in microseconds
	lost    map[string]int64           // when the first write of each ledger whose outcome is unknown arrived
	all     map[string][]porcupine.Operation
	// requested is what each pod requests; a pod that is not in it requests memory of GPUs.
	requested map[string]request
}

// collect records the version of a ledger that the request wrote, or that its outcome is unknown.
func (b *builder) collect(r *record) error {
	if r.ObjectRef.Resource != "ledgers" || r.rejected() {
		return nil
	}
	if r.unknown() {
		name := r.ObjectRef.Name // empty if the request creates it
		b.lost[name] = cmp.Or(b.lost[name], r.RequestReceivedTimestamp.UnixMicro())
		return nil
	}
	written := new(ledger.Object)
	if err := json.Unmarshal(r.ResponseObject, written); err != nil || r.Verb != "create" && r.Verb != "update" {
		return fmt.Errorf("unexpected %s of ledger %s: %w: %s", r.Verb, r.ObjectRef.Name, err, r.ResponseObject)
	}
	b.know(written)
	return nil
}

func (b *builder) know(o *ledger.Object) {
	if b.known[o.Name] == nil {
		b.known[o.Name] = versions{0: &ledger.Object{Spec: snapshot.Ledger{Resource: o.Spec.Resource, Node: o.Spec.Node}}}
		b.named[o.Name] = map[string]bool{}
	}
	b.known[o.Name][versionOf(o)] = o
	for i := range o.Spec.Pods {
		b.named[o.Name][podName(o, i)] = true
	}
}

// observe adds a read of the ledger, or the write that produced it if the outcome of that is unknown.
func (b *builder) observe(o *ledger.Object, sent, done int64) error {
	version := versionOf(o)
	if b.known[o.Name][version] != nil {
		return b.write(version, o, o, sent, done)
	}
	err := b.write(version, b.known[o.Name].before(version), o, sent, done)
	b.know(o)
	return err
}

func (b *builder) add(r *record) error {
	sent, done := r.RequestReceivedTimestamp.UnixMicro(), r.done(b.forever)
	binding := r.binding()
	switch {
	case r.ObjectRef.Resource == "ledgers":
		if r.unknown() || r.rejected() {
			return nil
		}
		object := new(ledger.Object)
		if err := json.Unmarshal(r.RequestObject, object); err != nil {
			return err
		}
		if r.Verb == "update" && object.ResourceVersion == "" {
			return fmt.Errorf("ledger %s is written without its resourceVersion", object.Name)
		}
		read := versionOf(object)
		return b.write(read, b.known[object.Name].before(read), object, sent, done)
	case binding != nil:
		concerned, wants := 0, requestOf(b.requested, r.pod())
		for name, versions := range b.known {
			if wants.allocations(&versions[0].Spec, binding.Target.Name) {
				b.append(name, operation{kind: bind, pod: r.pod(), annotations: binding.Annotations, unknown: r.unknown()}, sent, done)
				concerned++
			}
		}
		if concerned == 0 && !r.unknown() {
			return fmt.Errorf("pod %s is bound to %s, and there is no ledger of what it requests", r.pod(), binding.Target.Name)
		}
	case r.ends():
		for name := range b.known {
			if b.named[name][r.pod()] {
				b.append(name, operation{kind: end, pod: r.pod(), unknown: r.unknown()}, sent, done)
			}
		}
	}
	return nil
}

// write adds a write by a sender that has read the version, which changes the former content to that of next. If no
// response shows the version, a write whose outcome is unknown took effect: then both writes are one operation, which
// begins with the first.
func (b *builder) write(version int64, former, next *ledger.Object, sent, done int64) error {
	if b.known[next.Name][version] == nil {
		lost := min(cmp.Or(b.lost[next.Name], math.MaxInt64), cmp.Or(b.lost[""], math.MaxInt64))
		if lost > done {
			return fmt.Errorf("ledger %s has version %d, which no request wrote", next.Name, version)
		}
		sent = min(sent, lost)
	}
	before, held := holders(former), holders(next)
	op := operation{kind: write, allocations: map[holding]int64{}, releases: map[holding]int64{}, held: held, planned: map[string]map[string]string{}}
	for h, amount := range held {
		if before[h] != amount {
			op.allocations[h] = amount
		}
	}
	for h, amount := range before {
		if held[h] != amount {
			op.releases[h] = amount
		}
	}
	for i := range next.Spec.Pods {
		op.planned[podName(next, i)] = next.Spec.Pods[i].Annotations
	}
	b.append(next.Name, op, sent, done)
	return nil
}

// append adds the operation, as that of the first client that is idle.
func (b *builder) append(name string, op operation, sent, done int64) {
	client := 0
	for slices.ContainsFunc(b.all[name], func(o porcupine.Operation) bool { return o.ClientId == client && o.Return >= sent && o.Call <= done }) {
		client++
	}
	b.all[name] = append(b.all[name], porcupine.Operation{ClientId: client, Input: op, Call: sent, Return: done})
}

// holders returns who has allocated how much.
func holders(o *ledger.Object) map[holding]int64 {
	names := map[string]string{}
	for i := range o.Spec.Pods {
		names[string(o.Spec.Pods[i].UID)] = podName(o, i)
	}
	held := map[holding]int64{}
	for _, u := range o.Spec.Units {
		for _, c := range u.Allocations {
			held[holding{cmp.Or(names[string(c.Pod)], string(c.Pod)), u.Name}] += c.Amount
		}
	}
	return held
}

// podName names a pod. The tests use each name once.
func podName(o *ledger.Object, i int) string {
	return o.Spec.Pods[i].Namespace + "/" + o.Spec.Pods[i].Name
}
