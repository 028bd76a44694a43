package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// checkTime is the timeout for checking one history.
const checkTime = 10 * time.Second

// checkHistories checks what the API server has recorded. The history of each ledger must be that of a sequential
// ledger, and the pods on one GPU must never have more memory than the GPU, whatever ledgers contain. If not, it keeps
// the log, and a picture of each wrong history.
func (c *scene) checkHistories() {
	c.t.Helper()
	if err := c.observe(); err != nil {
		c.t.Fatal(err)
	}
	started := time.Now()
	log, records := c.recorded()
	checked, err := judge(records, c.observed)
	c.t.Logf("%s checked in %v", checked, time.Since(started).Round(time.Millisecond))
	if checked.operations == 0 || checked.placed == 0 {
		c.t.Error("the API server has recorded nothing")
	}
	if err != nil {
		dir, keepErr := checked.keep(log)
		c.t.Errorf("%v; the log and pictures are in %s", errors.Join(err, keepErr), dir)
	}
}

// recorded returns the API server's log so far, and its records.
func (c *scene) recorded() (log []byte, records []*record) {
	c.t.Helper()
	log, err := os.ReadFile(c.log.file)
	if err != nil {
		c.t.Fatal(err)
	}
	if records, err = parseLog(log); err != nil {
		c.t.Fatal(err)
	}
	return log, records
}

// observe records what the API server shows of all ledgers now.
func (c *scene) observe() error {
	seen := observation{after: time.Now()}
	data, err := c.Client.Discovery().RESTClient().Get().AbsPath(ledgersPath).Do(c.ctx).Raw()
	if err != nil {
		return err
	}
	var list ledger.ObjectList
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	seen.ledgers, seen.till = list.Items, time.Now()
	c.observed = append(c.observed, seen)
	return nil
}

// wrong is a history that is not that of its model.
type wrong struct {
	model porcupine.Model
	info  porcupine.LinearizationInfo
}

// verdict is what was checked.
type verdict struct {
	histories, operations, placed int
	wrong                         map[string]wrong // by the name of the ledger
}

func (v verdict) String() string {
	return fmt.Sprintf("%d histories with %d operations, and %d pods with GPUs, seats or devices", v.histories, v.operations, v.placed)
}

// judge checks the records, with observations at their end and maybe before. GPUs have cardSize of memory, the license has allSeats, and a
// device is for one pod.
func judge(records []*record, observations []observation) (v verdict, err error) {
	all, err := histories(records, observations, time.Now())
	if err != nil {
		return v, err
	}
	v.histories, v.wrong = len(all), map[string]wrong{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		h := all[name]
		v.operations += len(h.operations)
		result, info := porcupine.CheckOperationsVerbose(h.model, h.operations, checkTime)
		if result != porcupine.Ok {
			v.wrong[name] = wrong{h.model, info}
			errs = append(errs, fmt.Errorf("the history of ledger %s is not that of a sequential ledger: %s", name, result))
		}
	}
	placed, err := occupancy(records)
	v.placed = placed
	return v, errors.Join(append(errs, err)...)
}

// keep writes the log and a picture of each wrong history to a new directory, which the caller may remove.
func (v verdict) keep(log []byte) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "outboard-histories-"); err != nil {
		return "", err
	}
	errs := []error{os.WriteFile(filepath.Join(dir, "audit.log"), log, 0o600)}
	for name, w := range v.wrong {
		errs = append(errs, porcupine.VisualizePath(w.model, w.info, filepath.Join(dir, name+".html")))
	}
	return dir, errors.Join(errs...)
}

// script is an audit log of the ledger of a node's GPUs. Each request arrives after the response to the one before it.
type script struct {
	t        *testing.T
	now      time.Time
	log      []byte
	version  int // of the ledger
	observed []observation
}

const scriptedNode = "node-00"

var scriptedLedger = ledger.Name(snapshot.LedgerKey{Resource: memoryResource, Node: scriptedNode})

// ledger returns a ledger in which each pod has an allocation of more than half of GPU 0.
func (s *script) ledger(version int, pods ...string) map[string]any {
	var named, allocations []any
	for _, p := range pods {
		named = append(named, map[string]any{"uid": "uid-" + p, "namespace": "default", "name": p, "annotations": onGPU("0")})
		allocations = append(allocations, map[string]any{"pod": "uid-" + p, "amount": 10})
	}
	return map[string]any{
		"metadata": map[string]any{"name": scriptedLedger, "resourceVersion": strconv.Itoa(version)},
		"spec": map[string]any{
			"resource": memoryResource, "node": scriptedNode, "pods": named, "units": []any{map[string]any{"name": "0", "capacity": 10, "allocations": allocations}},
		},
	}
}

// onGPU returns the annotations of a pod with the GPU.
func onGPU(index string) map[string]string {
	return map[string]string{"ALIYUN_COM_GPU_MEM_IDX": index, "ALIYUN_COM_GPU_MEM_POD": "10"}
}

// request adds a request and its response.
func (s *script) request(verb string, ref map[string]any, code int, request, response any) {
	s.t.Helper()
	s.now = s.now.Add(time.Millisecond)
	r := map[string]any{"auditID": s.now.String(), "verb": verb, "objectRef": ref, "requestReceivedTimestamp": s.now}
	s.now = s.now.Add(time.Millisecond)
	r["stage"], r["stageTimestamp"], r["responseStatus"] = "ResponseComplete", s.now, map[string]any{"code": code}
	r["requestObject"], r["responseObject"] = request, response
	line, err := json.Marshal(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.log = append(append(s.log, line...), '\n')
}

// write replaces the version of the ledger that its sender has read.
func (s *script) write(read, version int, pods ...string) {
	s.t.Helper()
	s.version = version
	s.request("update", map[string]any{"resource": "ledgers", "name": scriptedLedger}, 200, s.ledger(read, pods...), s.ledger(version, pods...))
}

// observe lists the ledger.
func (s *script) observe(pods ...string) {
	s.t.Helper()
	data, err := json.Marshal(s.ledger(s.version, pods...))
	if err != nil {
		s.t.Fatal(err)
	}
	seen := observation{ledgers: make([]ledger.Object, 1), after: s.now.Add(time.Millisecond), till: s.now.Add(2 * time.Millisecond)}
	if err := json.Unmarshal(data, &seen.ledgers[0]); err != nil {
		s.t.Fatal(err)
	}
	s.now = seen.till
	s.observed = append(s.observed, seen)
}

// bind adds a Binding with the annotations.
func (s *script) bind(pod string, annotations map[string]string) {
	s.t.Helper()
	s.request("create", map[string]any{"resource": "pods", "subresource": "binding", "namespace": "default", "name": pod}, 201, map[string]any{
		"metadata": map[string]any{"name": pod, "annotations": annotations}, "target": map[string]any{"name": scriptedNode},
	}, nil)
}

// deletePod adds the deletion of a pod, which its kubelet finishes after the grace period, if there is one.
func (s *script) deletePod(pod string, grace int) {
	s.t.Helper()
	s.request("delete", map[string]any{"resource": "pods", "namespace": "default", "name": pod}, 200, nil, map[string]any{
		"metadata": map[string]any{"name": pod, "deletionGracePeriodSeconds": grace},
	})
}

func (s *script) records() []*record {
	s.t.Helper()
	records, err := parseLog(s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	return records
}

// The judge of the other tests can fail; otherwise they would prove nothing.
func TestJudge(t *testing.T) {
	for _, test := range []struct {
		name  string
		play  func(s *script)
		final []string
		wrong bool
	}{
		{name: "one pod after the other", play: func(s *script) {
			s.write(1, 2, "a")
			s.bind("a", onGPU("0"))
			s.deletePod("a", 0)
			s.write(2, 3)
			s.write(3, 4, "b")
			s.bind("b", onGPU("0"))
		}, final: []string{"b"}},
		{name: "a unit allocated twice", wrong: true, play: func(s *script) {
			s.write(1, 2, "a")
			s.write(2, 3, "a", "b")
		}, final: []string{"a", "b"}},
		{name: "a lost update", wrong: true, play: func(s *script) {
			s.write(1, 2, "a")
			s.write(1, 3, "b")
		}, final: []string{"b"}},
		{name: "an allocation released before the pod is deleted", wrong: true, play: func(s *script) {
			s.write(1, 2, "a")
			s.bind("a", onGPU("0"))
			s.write(2, 3)
			s.deletePod("a", 0)
		}},
		{name: "a pod bound with other annotations than those of its allocation", wrong: true, play: func(s *script) {
			s.write(1, 2, "a")
			s.bind("a", onGPU("1"))
		}, final: []string{"a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &script{t: t, now: time.Now().Add(-time.Hour), version: 1}
			s.request("create", map[string]any{"resource": "ledgers", "name": scriptedLedger}, 201, s.ledger(0), s.ledger(1))
			test.play(s)
			s.observe(test.final...)
			got, err := judge(s.records(), s.observed)
			if (err != nil) != test.wrong || len(got.wrong) > 0 != test.wrong {
				t.Errorf("got %v, %s", err, got)
			}
		})
	}
}
