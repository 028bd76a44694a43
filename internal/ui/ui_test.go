package ui_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/ledger/audit"
	"outboard.dev/outboard/internal/pending"
	"outboard.dev/outboard/internal/requeue"
	"outboard.dev/outboard/internal/ui"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const memory, count = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"

// world is a cluster in memory, and what one replica knows of it.
type world struct {
	builder  snapshot.Builder
	view     *snapshot.View
	pods     []*corev1.Pod
	unbound  []*corev1.Pod // of pods
	rejected map[types.UID]requeue.Status
	version  [2]uint64 // of pods and rejected
	findings []audit.Finding
	registry *prometheus.Registry
	log      *decision.Log
	now      time.Time
	config   *config.Config
	ready    error
}

func newWorld(t testing.TB) *world {
	t.Helper()
	c, err := config.Parse("f", []byte(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- policies:
  - {type: GPUMemory, weight: 2}
  - {type: Licenses, config: {features: [{name: solver, seats: 5}]}}
- path: /devices
  policies: [{type: Devices, config: {resource: example.com/fpga}}]
`), config.Types{Policies: standard.Types()})
	if err != nil {
		t.Fatal(err)
	}
	return &world{rejected: map[types.UID]requeue.Status{}, registry: prometheus.NewRegistry(), log: decision.NewLog(0), now: noon, config: c}
}

func (w *world) source() ui.Source {
	w.view = w.builder.View()
	return ui.Source{
		Name: "a", Metrics: w.registry, Log: w.log,
		Checks:    func() []ui.Check { return []ui.Check{{Name: "cluster", Error: text(w.ready)}} },
		Warnings:  func() []string { return nil },
		Signals:   func() []explain.Signal { return nil },
		View:      func() *snapshot.View { return w.view },
		Now:       func() time.Time { return w.now },
		CountPods: func() int { return len(w.pods) },
		Unbound:   func() []*corev1.Pod { return w.unbound },
		Version:   func() [2]uint64 { return w.version },
		Source: pending.Source{Config: func() *config.Config { return w.config }, Places: (*config.Profile).Places, Rejected: func(profile string, pod types.UID) (requeue.Status, bool) {
			status, ok := w.rejected[pod]
			return status, ok && profile == "/"
		}},
		Audit: func() (time.Time, []audit.Finding) { return noon, w.findings },
		Hints: explain.Source{View: func(types.UID) *snapshot.View { return w.view }, Engines: func() map[string]*engine.Engine { return nil }}.Hints,
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (w *world) node(name, model string, gpus, gib int64) {
	allocatable := corev1.ResourceList{
		memory: *resource.NewQuantity(gpus*gib, resource.DecimalSI), count: *resource.NewQuantity(gpus, resource.DecimalSI), "example.com/fpga": resource.MustParse("2"),
	}
	w.builder.SetNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"nvidia.com/gpu.product": model}}, Status: corev1.NodeStatus{Allocatable: allocatable, Capacity: allocatable},
	})
}

func (w *world) pod(name, node string, gib int, change ...func(*corev1.Pod)) *corev1.Pod {
	requests := corev1.ResourceList{memory: resource.MustParse(fmt.Sprint(gib)), "cpu": resource.MustParse("2")}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Time{Time: noon.Add(-time.Hour)}},
		Spec:       corev1.PodSpec{NodeName: node, SchedulerName: "default-scheduler", Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}}},
	}
	for _, f := range change {
		f(p)
	}
	w.pods = append(w.pods, p)
	if node != "" {
		w.builder.SetPod(p)
	} else {
		w.unbound = append(w.unbound, p)
		w.version[0]++
	}
	return p
}

// allocation gives the pod a part of a GPU.
func (w *world) allocation(node string, gpu, gib int64, pods ...*corev1.Pod) {
	l := &snapshot.Ledger{Resource: memory, Node: node, Units: []snapshot.LedgerUnit{{Name: fmt.Sprint(gpu), Capacity: 16}}}
	for _, p := range pods {
		l.Units[0].Allocations = append(l.Units[0].Allocations, snapshot.LedgerAllocation{Pod: p.UID, Amount: gib})
		l.Pods = append(l.Pods, snapshot.LedgerPod{UID: p.UID, Namespace: p.Namespace, Name: p.Name, Node: node, At: noon})
	}
	w.builder.SetLedger(l)
}

// get returns the response of the handlers to a request.
func get(t testing.TB, handlers map[string]http.Handler, target string, header ...string) *http.Response {
	t.Helper()
	mux := http.NewServeMux()
	for pattern, h := range handlers {
		mux.Handle(pattern, h)
	}
	req := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, req)
	return w.Result()
}

func decode[T any](t testing.TB, res *http.Response) T {
	t.Helper()
	var v T
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", res.Status, err, body)
	}
	if strings.Contains(string(body), ":null") {
		t.Errorf("null in %s", body)
	}
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// The units are those that outboard gpus shows, and the pools and devices of the other policies.
func TestUnits(t *testing.T) {
	w := newWorld(t)
	w.node("n2", "T4", 2, 16)
	w.node("n1", "H100", 4, 16)
	w.node("n0", "T4", 1, 16)
	w.allocation("n2", 1, 6, w.pod("a", "n2", 6), w.pod("b", "n2", 6))
	w.allocation("n1", 0, 20, w.pod("big", "n1", 20))
	handlers := ui.Handlers(w.source())
	got := decode[ui.Units](t, get(t, handlers, ui.UnitsPath+"?resource="+memory))
	if got.Title != "GPU memory" || got.Unit != "GiB" || !slices.Equal(got.Groups, []string{"H100", "T4"}) {
		t.Errorf("%+v", got)
	}
	if nodes := []string{"n1", "n0", "n2"}; !slices.Equal(got.Nodes, nodes) || !slices.Equal(expand(got.Group), []int64{0, 1, 1}) || !slices.Equal(expand(got.Count), []int64{4, 1, 2}) {
		t.Errorf("nodes %q of groups %v with %v units", got.Nodes, got.Group, got.Count)
	}
	var capacity, used, reserved, flags []int64
	p, err := gpumemory.New(gpumemory.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range got.Nodes {
		report, _ := p.(policy.Inspector).Inspect(w.view, "gpus/"+node)
		for _, gpu := range report.(gpumemory.Report).Nodes[0].GPUs {
			capacity, used, reserved, flags = append(capacity, gpu.Capacity), append(used, gpu.Used), append(reserved, gpu.Reserved), append(flags, 0)
			if !gpu.Healthy {
				flags[len(flags)-1] = ui.Unhealthy
			}
		}
	}
	for what, of := range map[string]struct{ got, want []int64 }{
		"capacity": {expand(got.Capacity), capacity}, "used": {got.Used, used}, "reserved": {expand(got.Reserved), reserved}, "flags": {expand(got.Flags), flags},
	} {
		if !slices.Equal(of.got, of.want) {
			t.Errorf("%s: %v, want %v", what, of.got, of.want)
		}
	}
	if pools := decode[ui.Units](t, get(t, handlers, ui.UnitsPath+"?resource=licenses")); fmt.Sprint(pools.Nodes, pools.Names, pools.Capacity, pools.Used) != "[solver] [[solver]] [5 1] [0]" {
		t.Errorf("pools: %+v", pools)
	}
	if fpgas := decode[ui.Units](t, get(t, handlers, ui.UnitsPath+"?resource=example.com/fpga")); len(fpgas.Nodes) != 3 {
		t.Errorf("devices: %+v", fpgas)
	}
	if none := decode[ui.Units](t, get(t, handlers, ui.UnitsPath+"?resource=other")); len(none.Nodes) != 0 {
		t.Errorf("another resource: %+v", none)
	}
}

// expand returns the values of runs.
func expand(runs []int64) (values []int64) {
	for i := 0; i < len(runs); i += 2 {
		values = append(values, slices.Repeat(runs[i:i+1], int(runs[i+1]))...)
	}
	return values
}

func TestWaiting(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "T4", 1, 16)
	owned := func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "train", Controller: &yes}}
	}
	w.pod("bound", "n1", 1)
	w.pod("ending", "", 1, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} })
	w.pod("other", "", 1, func(p *corev1.Pod) { p.Spec.Containers[0].Resources = corev1.ResourceRequirements{} })
	w.pod("gated", "", 1, func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}} })
	w.pod("untried", "", 1, func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits["example.com/fpgas"] = resource.MustParse("1")
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Message: "0/1 nodes are available"}}
	})
	miss := decision.Miss{Node: "n1", Have: 3, Want: 9}
	for i := range 3 {
		p := w.pod(fmt.Sprint("train-", i), "", 9, owned)
		w.rejected[p.UID] = requeue.Status{
			Since: noon.Add(-time.Duration(3-i) * time.Hour), Requeues: i, LastCall: noon, Nodes: 2,
			Rejection: decision.Rejection{Policy: "GPUMemory", Code: "InsufficientMemory", Text: "too little", Unit: "GiB", Nodes: 1, Nearest: []decision.Miss{miss}},
		}
	}
	handlers := ui.Handlers(w.source())
	rows := func(query string) (ui.Waiting, []string) {
		t.Helper()
		v := decode[ui.Waiting](t, get(t, handlers, ui.WaitingPath+query))
		var names []string
		for _, r := range v.Rows {
			names = append(names, fmt.Sprintf("%s %d %s", r.Pod, r.Pods, r.Reason))
		}
		return v, names
	}
	// The pod "other" requests no GPU, but the profile with Licenses is for all pods.
	all, names := rows("")
	want := []string{"team/train-0 3 GPUMemory.InsufficientMemory", "team/gated 1 gated", "team/other 1 not_tried", "team/untried 1 other"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if all.Pods != 6 || all.Owners != 4 || all.Shown != 6 || all.Total != 4 || !all.Since.Equal(noon.Add(-3*time.Hour)) || !slices.Equal(all.Reasons, []ui.Reason{{"GPUMemory.InsufficientMemory", "InsufficientMemory", 3}, {pending.Gated, "Scheduling gates", 1}, {pending.NotTried, "No scheduler has tried it", 1}, {pending.Other, "kube-scheduler itself, or another extender", 1}}) {
		t.Errorf("%+v", all)
	}
	first := ui.WaitingRow{
		Owner: "team/Job/train", Pods: 3, Pod: "team/train-0", Since: noon.Add(-3 * time.Hour), Requests: []string{"cpu: 2", memory + ": 9"},
		Reason: "GPUMemory.InsufficientMemory", Title: "InsufficientMemory", Text: "too little", Rejected: 1, Nodes: 2, Nearest: &miss, Unit: "GiB", LastCall: noon,
	}
	if diff := cmp.Diff(first, all.Rows[0]); diff != "" {
		t.Error(diff)
	}
	if why := all.Rows[3].Text; why != "no node reports example.com/fpgas; did you mean example.com/fpga (nodes: 1)?" {
		t.Errorf("a mistake in the request is said to be %q", why)
	}
	for query, want := range map[string][]string{
		"?owner=team/Job/train":         {"team/train-0 1 GPUMemory.InsufficientMemory", "team/train-1 1 GPUMemory.InsufficientMemory", "team/train-2 1 GPUMemory.InsufficientMemory"},
		"?reason=gated":                 {"team/gated 1 gated"},
		"?find=untr":                    {"team/untried 1 other"},
		"?find=zebra":                   nil,
		"?sort=reason":                  {"team/train-0 3 GPUMemory.InsufficientMemory", "team/gated 1 gated", "team/other 1 not_tried", "team/untried 1 other"},
		"?sort=pods&limit=2":            {"team/train-0 3 GPUMemory.InsufficientMemory", "team/gated 1 gated"},
		"?sort=zebra&limit=1":           {"team/train-0 3 GPUMemory.InsufficientMemory"},
		"?limit=1":                      {"team/train-0 3 GPUMemory.InsufficientMemory"},
		"?limit=-1&reason=gated":        {"team/gated 1 gated"},
		"?owner=team/Job/train&limit=2": {"team/train-0 1 GPUMemory.InsufficientMemory", "team/train-1 1 GPUMemory.InsufficientMemory"},
	} {
		if _, got := rows(query); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
}

// The whole list is sorted before it is cut to the limit.
func TestWaitingOrder(t *testing.T) {
	var pods []*ui.WaitingRow
	for i := range 600 {
		row := &ui.WaitingRow{Owner: fmt.Sprintf("ns/Job/j%d", i), Pods: 1, Pod: fmt.Sprintf("ns/j%d", i), Since: noon.Add(time.Duration(i) * time.Minute), Reason: "b"}
		if i == 599 {
			other := *row
			row.Reason, other.Pod, other.Since = "a", "ns/other", noon.Add(time.Hour*24)
			pods = append(pods, &other)
		}
		pods = append(pods, row)
	}
	for sort, want := range map[string][]string{"": {"ns/j0", "ns/j1"}, "pods": {"ns/j599", "ns/j0"}, "reason": {"ns/j599", "ns/j0"}} {
		w := ui.Group(pods, ui.Query{Sort: sort, Limit: 2})
		if got := []string{w.Rows[0].Pod, w.Rows[1].Pod}; !slices.Equal(got, want) || w.Total != 600 || w.Shown != 601 || !w.Since.Equal(noon) {
			t.Errorf("%q: got %q of %d rows since %s, want %q", sort, got, w.Total, w.Since, want)
		}
	}
	if w := ui.Group(pods, ui.QueryOf(url.Values{"limit": {"99999"}})); len(w.Rows) != 500 {
		t.Errorf("%d rows, at most 500", len(w.Rows))
	}
}

func TestHeld(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "T4", 2, 16)
	gone := w.pod("gone", "", 3)
	w.allocation("n1", 1, 3, w.pod("runs", "n1", 3, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }),
		w.pod("ends", "n1", 3, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} }), gone)
	w.findings = []audit.Finding{{Kind: audit.Leaked, Resource: memory, Node: "n1", Unit: "1", Holders: []audit.Holder{}}}
	handlers := ui.Handlers(w.source())
	h := decode[ui.Held](t, get(t, handlers, ui.HeldPath))
	var got []string
	for _, r := range h.Rows {
		got = append(got, fmt.Sprint(r.Node, " ", r.Unit, " ", r.Pod, " ", r.Amount, " ", r.State))
	}
	if want := []string{"n1 1 ends 3 terminating", "n1 1 gone 3 deleted", "n1 1 runs 3 running"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !h.Audited.Equal(noon) || len(h.Findings) != 1 || h.Total != 3 {
		t.Errorf("%+v", h)
	}
	for query, want := range map[string]int{"?resource=" + memory: 3, "?resource=other": 0, "?node=n1": 3, "?node=n2": 0, "?find=team/ru": 1} {
		if h := decode[ui.Held](t, get(t, handlers, ui.HeldPath+query)); h.Total != want {
			t.Errorf("%s: %d rows, want %d", query, h.Total, want)
		}
	}
}

// A node says whether it takes pods, what is left of its resources, and what each pod on it holds.
func TestNode(t *testing.T) {
	w := newWorld(t)
	has := corev1.ResourceList{memory: resource.MustParse("32"), count: resource.MustParse("2")}
	w.builder.SetNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "gpus"},
		Spec:       corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "gpu", Value: "a", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Capacity: has, Allocatable: corev1.ResourceList{memory: {}, count: {}}, // the device plugin is down
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.Time{Time: noon}, Message: "Kubelet stopped posting node status."}},
		},
	})
	w.builder.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	w.allocation("gpus", 1, 6, w.pod("holds", "gpus", 6))
	w.pod("other", "gpus", 0)
	seat, elsewhere := w.pod("seat", "none", 0), w.pod("elsewhere", "gpus", 0)
	l := &snapshot.Ledger{Resource: "licenses/solver", Units: []snapshot.LedgerUnit{{Name: "0", Capacity: 5}}}
	for _, p := range []*corev1.Pod{seat, elsewhere} {
		l.Units[0].Allocations = append(l.Units[0].Allocations, snapshot.LedgerAllocation{Pod: p.UID, Amount: 2})
		l.Pods = append(l.Pods, snapshot.LedgerPod{UID: p.UID, Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, At: noon})
	}
	w.builder.SetLedger(l)
	w.builder.SetSignal(snapshot.NewSignal("load", map[string]snapshot.Value{"none": {Number: 37, At: noon, Stale: true}}))
	source := w.source()
	source.Signals = func() []explain.Signal { return []explain.Signal{{Name: "load"}, {Name: "price"}} }
	handlers := ui.Handlers(source)
	for name, want := range map[string]string{
		"gpus": "NotReady,SchedulingDisabled Kubelet stopped posting node status. [gpu=a:NoSchedule] aliyun.com/gpu-mem {32 0} [16 2] [0 6] [1 2] [] holds 6 1, elsewhere 2 solver, other 0 ",
		"none": "Ready  [] [{load 37 2026-05-01 12:00:00 +0000 UTC true}] seat 2 solver",
		"gone": "  [] []",
	} {
		n := decode[ui.Node](t, get(t, handlers, ui.NodePath+"?name="+name))
		got := []any{n.Status, " ", n.Message, " ", n.Taints, " "}
		for _, r := range n.Resources {
			got = append(got, r.Resource.Resource, " ", *r.Reported, " ", r.Capacity, " ", r.Used, " ", r.Flags, " ")
		}
		got = append(got, n.Signals)
		for i, r := range n.Rows {
			got = append(got, []string{" ", ", "}[min(i, 1)], r.Pod, fmt.Sprintf(" %d ", r.Amount), r.Unit)
		}
		if diff := cmp.Diff(want, fmt.Sprint(got...)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// Devices of Dynamic Resource Allocation are units, and claims hold them. Two profiles have the same devices.
func TestDevicesOfAllocations(t *testing.T) {
	w := newWorld(t)
	var err error
	w.config, err = config.Parse("f", []byte("{apiVersion: outboard.dev/v1alpha1, kind: OutboardConfiguration, serving: {insecure: true}, profiles: [{path: /a, policies: [{type: ResourceClaims}]}, {path: /b, policies: [{type: ResourceClaims}]}]}"), config.Types{Policies: standard.Types()})
	if err != nil {
		t.Fatal(err)
	}
	w.builder.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	w.builder.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	policytest.Devices(`
- kind: ResourceSlice
  metadata: {name: s}
  spec:
    driver: gpu.nvidia.com
    nodeName: n1
    pool: {name: n1, generation: 1, resourceSliceCount: 1}
    devices:
    - {name: gpu-0, allowMultipleAllocations: true, attributes: {productName: {string: T4}}, capacity: {memory: {value: 16Gi}}}
    - {name: gpu-1, allowMultipleAllocations: true, attributes: {productName: {string: T4}}, capacity: {memory: {value: 16Gi}}}
- kind: ResourceClaim
  metadata: {name: used}
  status: {allocation: {devices: {results: [{request: r, driver: gpu.nvidia.com, pool: n1, device: gpu-1, shareID: s1, consumedCapacity: {memory: 4Gi}}]}}}
- kind: ResourceClaim
  metadata: {name: left}
  status: {allocation: {devices: {results: [{request: r, driver: gpu.nvidia.com, pool: n1, device: gpu-1, shareID: s2, consumedCapacity: {memory: 2Gi}}]}}}
`)(&w.builder)
	allocation := "used"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}, Spec: corev1.PodSpec{NodeName: "n1", ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &allocation}}}}
	w.builder.SetPod(pod)
	handlers := ui.Handlers(w.source())
	u := decode[ui.Units](t, get(t, handlers, ui.UnitsPath+"?resource=gpu.nvidia.com"))
	if got, want := fmt.Sprint(u.Noun, u.Groups, u.Nodes, u.Names, u.Capacity, u.Used), "GPU[T4] [n1] [[gpu-0 gpu-1]] [16 2] [0 6]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for query, want := range map[string]string{"": "gpu-1  unknown 2 not audited; gpu-1 p bound 4 not audited; ", "?node=n1&resource=gpu.nvidia.com": "gpu-1  unknown 2 not audited; gpu-1 p bound 4 not audited; ", "?node=n2": ""} {
		got := ""
		for _, r := range decode[ui.Held](t, get(t, handlers, ui.HeldPath+query)).Rows {
			got += fmt.Sprintf("%s %s %s %d %s; ", r.Unit, r.Pod, r.State, r.Amount, r.Audit)
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", query, got, want)
		}
	}
	devices := ui.DriverDevices{Driver: "gpu.nvidia.com", Unit: "GiB", Nodes: []ui.NodeDevices{{Name: "n1", Model: "T4", Devices: []ui.Device{
		{Name: "gpu-0", Capacity: 16, Healthy: true, Claims: []ui.DeviceClaim{}},
		{Name: "gpu-1", Capacity: 16, Used: 6, Healthy: true, Claims: []ui.DeviceClaim{
			{Namespace: "default", Name: "left", Amount: 2},
			{Namespace: "default", Name: "used", Pod: &allocations.Holder{Namespace: "default", Name: "p", UID: "p"}, Amount: 4},
		}},
	}}}}
	none := ui.DriverDevices{Driver: "gpu.nvidia.com", Unit: "GiB", Nodes: []ui.NodeDevices{}}
	for query, want := range map[string]ui.Devices{
		"": {Drivers: []ui.DriverDevices{devices}}, "?node=n1": {Drivers: []ui.DriverDevices{devices}},
		"?node=n2":      {Drivers: []ui.DriverDevices{none}, Error: `node "n2" has no devices of gpu.nvidia.com`},
		"?node=no-such": {Drivers: []ui.DriverDevices{none}, Error: `node "no-such" not found`},
	} {
		if diff := cmp.Diff(want, decode[ui.Devices](t, get(t, handlers, ui.DevicesPath+query))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", query, diff)
		}
	}
}

// A pod on a node without the allocation that its profile requires is shown beside those with allocations.
func TestHeldWithoutAAllocation(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "T4", 2, 16)
	w.allocation("n1", 1, 3, w.pod("allocations", "n1", 3))
	w.pod("bypassed", "n1", 2)
	w.pod("unrelated", "n1", 0)
	h := decode[ui.Held](t, get(t, ui.Handlers(w.source()), ui.HeldPath))
	if len(h.Rows) != 2 || h.Total != 2 {
		t.Fatalf("%+v", h)
	}
	want := ui.HeldRow{Resource: memory, Node: "n1", Namespace: "team", Pod: "bypassed", UID: "bypassed", Owner: "team/Pod/bypassed", Amount: 2, State: "bound", Unallocated: true, Audit: "without an allocation", Differs: true}
	if diff := cmp.Diff(want, h.Rows[0]); diff != "" || h.Rows[1].Unallocated {
		t.Errorf("%+v\n%s", h.Rows, diff)
	}
}

// The sums of all rows are by namespace or owner, and what the pod says of its allocation is with the allocation.
func TestHeldGroups(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "T4", 2, 16)
	yes := true
	of := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "train", Controller: &yes}}
		p.Annotations = map[string]string{"index": "0,1", "time": "7", "other": "1"}
	}
	w.allocation("n1", 1, 3, w.pod("a", "n1", 3, of), w.pod("b", "n1", 3, of), w.pod("c", "n1", 3))
	l := *w.builder.View().Ledger(snapshot.LedgerKey{Resource: memory, Node: "n1"})
	l.Pods = slices.Clone(l.Pods)
	l.Pods[0].Annotations = map[string]string{"index": "0,1", "time": "7", "lacking": "3"}
	w.builder.SetLedger(&l)
	handlers := ui.Handlers(w.source())
	if h := decode[ui.Held](t, get(t, handlers, ui.HeldPath)); !slices.Equal(h.Rows[0].Annotations, []string{"index: 0,1"}) || h.Rows[1].Annotations != nil {
		t.Errorf("annotations %q and %q", h.Rows[0].Annotations, h.Rows[1].Annotations)
	}
	for by, want := range map[string][]ui.HeldGroup{
		"namespace": {{"team", memory, 3, 9, 32}}, "owner": {{"team/Job/train", memory, 2, 6, 32}, {"team/Pod/c", memory, 1, 3, 32}},
	} {
		if h := decode[ui.Held](t, get(t, handlers, ui.HeldPath+"?by="+by)); !slices.Equal(h.Groups, want) || h.Total != 3 || len(h.Rows) != 0 {
			t.Errorf("by %s: %+v", by, h)
		}
	}
}

// A replica keeps numbers of each two minutes, whether or not somebody looks. A number that is not known yet is -1, and so is each one of a
// time for which the replica slept. The oldest point is of a day ago.
func TestHistory(t *testing.T) {
	w := newWorld(t)
	capacity := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "outboard_resource_capacity"}, []string{"resource"})
	allocated := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "outboard_resource_allocated"}, []string{"resource", "namespace"})
	w.registry.MustRegister(capacity, allocated)
	calls := callmetrics.New(w.registry)
	source, sample := w.source(), func() {}
	source.Repeat = func(f func()) { sample = f }
	handlers := ui.Handlers(source)
	after := func(d time.Duration) { w.now = w.now.Add(d); sample() }
	after(0)
	calls.Observe("/", decision.Filter, time.Millisecond, nil, nil)
	calls.Observe("/", decision.Filter, time.Millisecond, nil, fmt.Errorf("failed"))
	after(time.Minute)
	w.pod("waits", "", 1)
	w.version[0]++
	capacity.WithLabelValues(memory).Set(32)
	allocated.WithLabelValues(memory, "a").Set(4)
	allocated.WithLabelValues(memory, "b").Set(4)
	after(time.Minute)
	after(4 * time.Minute)
	want := ui.History{Replica: "a", Seconds: 120, Last: noon.Add(6 * time.Minute), Series: []ui.Series{
		{Title: "Calls", Points: []float64{0, 2, -1, 0}},
		{Title: "Failed calls", Points: []float64{0, 1, -1, 0}},
		{Title: "Waiting pods", Points: []float64{0, 1, -1, 1}},
		{Title: memory + ": % allocated", Points: []float64{-1, 25, -1, 25}},
		{Title: memory + ": % free and too little", Points: []float64{-1, 0, -1, 0}},
	}}
	if diff := cmp.Diff(want, decode[ui.History](t, get(t, handlers, ui.HistoryPath))); diff != "" {
		t.Error(diff)
	}
	for range 800 {
		after(2 * time.Minute)
	}
	if h := decode[ui.History](t, get(t, handlers, ui.HistoryPath)); len(h.Series[0].Points) != 720 {
		t.Errorf("%d points, want those of a day", len(h.Series[0].Points))
	}
	after(-time.Hour) // to another clock
	if h := decode[ui.History](t, get(t, handlers, ui.HistoryPath)); len(h.Series[0].Points) != 1 {
		t.Errorf("%d points after the clock has gone back", len(h.Series[0].Points))
	}
}

// Pods are found in all namespaces by the beginnings of their names, and nodes, too.
func TestFind(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "T4", 2, 16)
	w.node("n2", "T4", 2, 16)
	w.pod("near", "n1", 1)
	w.pod("next", "", 1, func(p *corev1.Pod) { p.Namespace = "b" })
	handlers := ui.Handlers(w.source())
	for text, want := range map[string]ui.Found{
		"n":       {Pods: []ui.FoundPod{{"team", "near", "n1"}, {"b", "next", ""}}, Nodes: []string{"n1", "n2"}},
		"ne":      {Pods: []ui.FoundPod{{"team", "near", "n1"}, {"b", "next", ""}}, Nodes: []string{}},
		"team/ne": {Pods: []ui.FoundPod{{"team", "near", "n1"}}, Nodes: []string{}},
		"tea/ne":  {Pods: []ui.FoundPod{}, Nodes: []string{}},
		"n2":      {Pods: []ui.FoundPod{}, Nodes: []string{"n2"}},
		"":        {Pods: []ui.FoundPod{}, Nodes: []string{}},
	} {
		if diff := cmp.Diff(want, decode[ui.Found](t, get(t, handlers, ui.FindPath+"?text="+text))); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
	for i := range 60 {
		w.pod(fmt.Sprint("many-", i), "n1", 1)
	}
	w.view = w.builder.View()
	if f := decode[ui.Found](t, get(t, handlers, ui.FindPath+"?text=many")); len(f.Pods) != 50 || !f.More {
		t.Errorf("%d pods, more: %t", len(f.Pods), f.More)
	}
}

// The overview counts calls and waiting pods, and has the ETag of what it says, whatever the time.
func TestOverview(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "T4", 2, 16)
	w.pod("waits", "", 1)
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "outboard_config_info"}, []string{"digest"})
	w.registry.MustRegister(info)
	info.WithLabelValues("abc").Set(1)
	calls := callmetrics.New(w.registry)
	w.log.Add(&decision.Record{Time: noon, Verb: decision.Filter, Profile: "/", Pod: decision.Pod{SchedulerName: "batch"}}, nil)
	source, count := w.source(), func() {}
	source.Repeat = func(f func()) { count = f }
	handlers := ui.Handlers(source)
	calls.Observe("/", decision.Filter, time.Millisecond, nil, nil)
	calls.Observe("/", decision.Filter, time.Millisecond, nil, fmt.Errorf("failed"))
	count() // before anybody looks
	for i, took := range []time.Duration{time.Millisecond, 3 * time.Millisecond} {
		w.now = w.now.Add(10 * time.Second)
		calls.Observe("/", decision.Filter, took, nil, []error{nil, fmt.Errorf("failed")}[i])
	}
	res := get(t, handlers, ui.OverviewPath)
	o := decode[ui.Overview](t, res)
	if len(o.Replicas) != 1 || len(o.Resources) != 3 {
		t.Fatalf("%+v", o)
	}
	r := o.Replicas[0]
	if r.Name != "a" || r.Configuration != "abc" || r.Nodes != 1 || r.Pods != 1 || r.Waiting != 1 || len(r.Profiles) != 2 {
		t.Errorf("%+v", r)
	}
	if d := r.Profiles[0].Calls[0].Durations; len(d) == 0 || d[0].Count != 0 || d[6].Count != 1 || d[len(d)-1].Count != 2 {
		t.Errorf("durations %+v", d)
	}
	if got := r.Profiles[0].Schedulers; !slices.Equal(got, []string{"batch"}) {
		t.Errorf("schedulers %q", got)
	}
	if c := r.Profiles[0].Calls[0]; c.Verb != decision.Filter || c.Total != 4 || c.Calls != 2 || c.Failed != 1 || !c.Last.Equal(noon) {
		t.Errorf("%+v", c)
	}
	if c := o.Profiles[0].Calls[0]; o.Over != "in the last 20 s" || c.Calls != 2 || c.P50 != "1.6 ms" || c.P99 != "3.2 ms" || !slices.Equal(o.Troubles, []ui.Trouble{{Text: "1 of 2 filter calls of profile / failed in the last 20 s."}}) {
		t.Errorf("%s: %+v, %+v", o.Over, o.Profiles, o.Troubles)
	}
	for _, later := range []time.Duration{time.Minute, 2 * time.Minute} { // from when on nothing has happened in the last minute
		w.now = w.now.Add(later)
		res = get(t, handlers, ui.OverviewPath)
	}
	etag := res.Header.Get("ETag")
	if o := decode[ui.Overview](t, res); o.Over != "in the last minute" || len(o.Troubles) > 0 || o.Profiles[0].Calls[0].Calls != 0 || o.Profiles[0].Calls[0].Total != 4 {
		t.Errorf("later: %+v", o)
	}
	w.now = w.now.Add(time.Minute)
	if res := get(t, handlers, ui.OverviewPath, "If-None-Match", etag); res.StatusCode != http.StatusNotModified {
		t.Errorf("a minute later: %s", res.Status)
	}
	w.ready = fmt.Errorf("not read")
	if res := get(t, handlers, ui.OverviewPath, "If-None-Match", etag); res.StatusCode != http.StatusOK {
		t.Errorf("not ready: %s", res.Status)
	}
}

// The ETag changes exactly when the data does, also in another process.
func TestETag(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "T4", 8, 16)
	s := w.source()
	handlers := ui.Handlers(s)
	for _, target := range []string{ui.UnitsPath + "?resource=" + memory, ui.WaitingPath, ui.HeldPath, ui.SignalsPath} {
		first := get(t, handlers, target).Header.Get("ETag")
		if first == "" || get(t, ui.Handlers(s), target).Header.Get("ETag") != first {
			t.Errorf("%s: another process has another ETag than %q", target, first)
		}
		if res := get(t, handlers, target, "If-None-Match", first); res.StatusCode != http.StatusNotModified || res.ContentLength > 0 {
			t.Errorf("%s: %s", target, res.Status)
		}
		if get(t, handlers, target).Header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: no Content-Security-Policy", target)
		}
	}
	before := get(t, handlers, ui.UnitsPath+"?resource="+memory).Header.Get("ETag")
	w.allocation("n1", 3, 5, w.pod("p", "n1", 5))
	w.view = w.builder.View()
	if after := get(t, handlers, ui.UnitsPath+"?resource="+memory).Header.Get("ETag"); after == before {
		t.Error("an allocation does not change the ETag of the units")
	}
}

// Without a cluster, everything is empty.
func TestWithoutCluster(t *testing.T) {
	w := newWorld(t)
	s := w.source()
	s.CountPods, s.Unbound, s.Rejected, s.Version, s.Audit = nil, nil, nil, nil, nil
	handlers := ui.Handlers(s)
	if o := decode[ui.Overview](t, get(t, handlers, ui.OverviewPath)); len(o.Replicas) != 1 {
		t.Errorf("%+v", o)
	}
	decode[ui.Units](t, get(t, handlers, ui.UnitsPath+"?resource="+memory))
	decode[ui.Waiting](t, get(t, handlers, ui.WaitingPath))
	decode[ui.Held](t, get(t, handlers, ui.HeldPath))
	decode[ui.Signals](t, get(t, handlers, ui.SignalsPath))
}

// The page asks nobody else, and takes nothing for HTML.
func TestStaticFiles(t *testing.T) {
	handlers := ui.Handlers(newWorld(t).source())
	res := get(t, handlers, "/")
	if res.StatusCode != http.StatusFound || res.Header.Get("Location") != ui.Path {
		t.Errorf("/: %s to %q", res.Status, res.Header.Get("Location"))
	}
	sum, lines := 0, 0
	for _, name := range []string{"", "style.css", "icon.svg", "main.js", "dom.js", "data.js", "waiting.js", "find.js", "units.js", "wall.js", "pod.js", "try.js", "held.js", "signals.js", "health.js"} {
		res := get(t, handlers, ui.Path+name)
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", name, res.Status, err)
		}
		sum, lines = sum+len(body), lines+strings.Count(string(body), "\n")
		for _, forbidden := range []string{"innerHTML", "insertAdjacentHTML", "eval(", "https://", "http://"} {
			if at := strings.Index(strings.ReplaceAll(string(body), "http://www.w3.org/2000/svg", ""), forbidden); at >= 0 {
				t.Errorf("%s has %s", name, forbidden)
			}
		}
	}
	if sum > 88<<10 || lines > 1500 { // read once, and about a third of that if it is compressed
		t.Errorf("the page has %d bytes in %d lines, at most 88 KiB in 1,500 lines", sum, lines)
	}
}
