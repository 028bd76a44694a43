package browser

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/internal/ledger/audit"
	"outboard.dev/outboard/internal/pending"
	"outboard.dev/outboard/internal/requeue"
	"outboard.dev/outboard/internal/service"
	"outboard.dev/outboard/internal/ui"
	policies "outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
	"outboard.dev/outboard/snapshot"
)

// noon is the time at every replica of a fixture.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const (
	gpuMemory = "aliyun.com/gpu-mem"
	gpuCount  = "aliyun.com/gpu-count"
)

// A world is a cluster in memory whose pods the engine places, as it does for kube-scheduler, with what one replica records of that. So
// the page shows what it shows of a real cluster, with the same texts, and always the same. It belongs to one goroutine until it is served.
type world struct {
	config   *config.Config
	engine   *engine.Engine
	builder  snapshot.Builder
	ledgers  map[snapshot.LedgerKey]snapshot.Ledger
	pods     map[string]*corev1.Pod // by namespace/name
	rejected map[types.UID]requeue.Status
	log      *decision.Log
	registry *prometheus.Registry
	calls    *callmetrics.Metrics
	loads    map[string]snapshot.Value
	now      time.Time
	random   *rand.Rand
}

func newWorld() *world {
	c, err := config.Parse("outboard.yaml", []byte(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
signals:
- {name: load, file: {path: load.yaml}}
- {name: price, file: {path: prices.yaml}}
profiles:
- path: /
  schedulerNames: [default-scheduler]
  policies:
  - {type: GPUMemory, weight: 2}
  - {type: Utilization, weight: 1, config: {cpu: {signal: load, unit: Percent}}}
  - {type: Licenses, config: {features: [{name: solver, seats: 12}, {name: renderer, seats: 40}]}}
`), config.Types{Policies: policies.Types(), Signals: signals.Types()})
	must(err)
	w := &world{
		config: c, ledgers: map[snapshot.LedgerKey]snapshot.Ledger{}, pods: map[string]*corev1.Pod{}, rejected: map[types.UID]requeue.Status{},
		log: decision.NewLog(0), registry: prometheus.NewRegistry(), loads: map[string]snapshot.Value{}, now: noon.Add(-12 * time.Hour), random: rand.New(rand.NewPCG(1, 2)),
	}
	w.engine, err = service.EngineOf(c, &c.Profiles[0], nil)
	must(err)
	w.calls = callmetrics.New(w.registry)
	digest, err := c.Digest()
	must(err)
	w.gauge("outboard_build_info", prometheus.Labels{"version": "v0.9.0"}, 1)
	w.gauge("outboard_config_info", prometheus.Labels{"digest": digest}, 1)
	w.gauge("process_start_time_seconds", nil, float64(noon.Add(-51*time.Hour).Unix()))
	for use, days := range map[string]int{"serving": 61, "client_ca": 1460} {
		w.gauge("outboard_server_certificate_expiry_timestamp_seconds", prometheus.Labels{"certificate": use}, float64(noon.AddDate(0, 0, days).Unix()))
		w.gauge("outboard_server_certificate_renewal_timestamp_seconds", prometheus.Labels{"certificate": use}, float64(noon.AddDate(0, 0, days-14).Unix()))
	}
	for caller, days := range map[string]int{"kube-scheduler": 240, "kube-scheduler-batch": 33} {
		w.gauge("outboard_server_caller_certificate_expiry_timestamp_seconds", prometheus.Labels{"caller": caller}, float64(noon.AddDate(0, 0, days).Unix()))
		w.gauge("outboard_server_caller_certificate_renewal_timestamp_seconds", prometheus.Labels{"caller": caller}, float64(noon.AddDate(0, 0, days-14).Unix()))
	}
	return w
}

func (w *world) gauge(name string, labels prometheus.Labels, value float64) {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, ConstLabels: labels})
	g.Set(value)
	w.registry.MustRegister(g)
}

// must ends the test program: the world is the same in each run.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// model is a model of GPU with its nodes.
type model struct {
	name, prefix string
	nodes        int
	gpus, memory int64
	sizes        []int64 // of pods
	taints       []corev1.Taint
}

// addNodes adds the nodes of a model; of all GPUs, one in unhealthy is unhealthy.
func (w *world) addNodes(m model, unhealthy int) {
	for i := range m.nodes {
		name := fmt.Sprintf("%s-%04d", m.prefix, i)
		has := corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewQuantity(16*m.gpus, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(m.gpus<<37, resource.BinarySI),
			corev1.ResourcePods: resource.MustParse("110"), gpuMemory: *resource.NewQuantity(m.gpus*m.memory, resource.DecimalSI), gpuCount: *resource.NewQuantity(m.gpus, resource.DecimalSI),
		}
		w.builder.SetNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"nvidia.com/gpu.product": m.name, corev1.LabelHostname: name}},
			Spec:       corev1.NodeSpec{Taints: m.taints},
			Status: corev1.NodeStatus{Capacity: has, Allocatable: has, Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: noon.AddDate(0, 0, -20)},
			}}},
		})
		if unhealthy > 0 && w.random.IntN(unhealthy) < int(m.gpus) {
			w.builder.SetConfigMap(snapshot.ConfigMapSource{Namespace: "kube-system", Prefix: "unhealthy-gpu-"}, name, map[string]string{"gpus": fmt.Sprint(w.random.IntN(int(m.gpus)))})
		}
		w.loads[name] = snapshot.Value{Number: float64(w.random.IntN(70)), At: noon.Add(-time.Duration(4+w.random.ExpFloat64()*9) * time.Second)}
	}
	w.builder.SetSignal(snapshot.NewSignal("load", w.loads))
}

// template is what the pods of one owner have in common.
type template struct {
	namespace, kind, name string
	gpu                   int64  // GiB
	models                string // that the pod allows
	licenses, gate        string
	cpu                   int64
}

// arrive adds a pod that has just been created.
func (w *world) arrive(t template, i int) *corev1.Pod {
	yes := true
	requests := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(max(t.cpu, 4), resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(max(t.cpu, 4)<<31, resource.BinarySI)}
	if t.gpu > 0 {
		requests[gpuMemory] = *resource.NewQuantity(t.gpu, resource.DecimalSI)
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.namespace, Name: fmt.Sprintf("%s-%05x", t.name, i), UID: types.UID(fmt.Sprintf("%s-%s-%d", t.namespace, t.name, i)), ResourceVersion: "1",
			CreationTimestamp: metav1.Time{Time: w.now}, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{Kind: t.kind, Name: t.name, Controller: &yes}},
		},
		Spec: corev1.PodSpec{
			SchedulerName: corev1.DefaultSchedulerName, Tolerations: []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if t.models != "" {
		p.Annotations["outboard.dev/gpu-models"] = t.models
	}
	if t.licenses != "" {
		p.Annotations["outboard.dev/licenses"] = t.licenses
	}
	if t.gate != "" {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: t.gate}}
	}
	w.set(p)
	return p
}

func (w *world) set(p *corev1.Pod) {
	w.pods[p.Namespace+"/"+p.Name] = p
	w.builder.SetPod(p)
}

// schedule is one attempt of kube-scheduler to place the pod.
func (w *world) schedule(pod *corev1.Pod) {
	if snapshot.Gated(pod) {
		return
	}
	ctx, view := context.Background(), w.builder.View()
	filters, excluded := kubescheduler.For(pod), map[string]int{}
	var nodes []*snapshot.Node
	for n := range view.All() {
		if why := cmp.Or(filters.Excludes(n.Object), filters.Lacks(n)); why != "" {
			excluded[why]++
		} else {
			nodes = append(nodes, n)
		}
	}
	var filtered, scored engine.Result
	must(w.engine.Filter(ctx, engine.Request{Pod: pod, View: view, Nodes: nodes}, &filtered))
	if len(nodes) > 0 {
		w.record(decision.Filter, filtered.Record, nil)
	}
	if len(filtered.Kept) == 0 {
		w.reject(pod, view.Len(), len(nodes), excluded, filtered.Record.Rejections)
		return
	}
	best := nodes[filtered.Kept[0]]
	if len(filtered.Kept) > 1 {
		var kept []*snapshot.Node
		for _, i := range filtered.Kept {
			kept = append(kept, nodes[i])
		}
		must(w.engine.Score(ctx, engine.Request{Pod: pod, View: view, Nodes: kept}, &scored))
		w.record(decision.Prioritize, scored.Record, scored.Scores)
		best = kept[slices.Index(scored.Totals, slices.Max(scored.Totals))]
	}
	must(w.bind(pod, view, best))
}

// tick lets time pass.
func (w *world) tick(seconds int) { w.now = w.now.Add(time.Duration(seconds) * time.Second) }

// retry lets kube-scheduler try the waiting pods again, shortly before noon.
func (w *world) retry() {
	w.now = noon.Add(-45 * time.Second)
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		if pod := w.pods[name]; pod.Spec.NodeName == "" && !snapshot.Gated(pod) {
			status := w.rejected[pod.UID]
			if status.Requeues++; !status.Since.IsZero() && w.random.IntN(3) == 0 {
				status.LastRequeued = w.now
				w.rejected[pod.UID] = status
			}
			w.schedule(pod)
		}
	}
}

// record adds a record of a call to the log and to the metrics.
func (w *world) record(verb decision.Verb, r *decision.Record, scores *decision.Scores) {
	r.Verb, r.Profile, r.Time, r.Duration = verb, "/", w.now, time.Duration(200+w.random.IntN(1800))*time.Microsecond
	w.log.Add(r, scores)
	w.calls.Observe("/", verb, r.Duration, r, nil)
}

// lastMinute counts calls as they come in a minute, and keeps some of them.
func (w *world) lastMinute() {
	for verb, n := range map[decision.Verb]int{decision.Filter: 48, decision.Prioritize: 31, decision.Bind: 29} {
		if verb != decision.Filter {
			w.log.Add(&decision.Record{Time: noon.Add(-41 * time.Second), Verb: verb, Profile: "/", Pod: decision.Pod{Namespace: "team-a", Name: "gone", SchedulerName: corev1.DefaultSchedulerName}}, nil)
		}
		for i := range n {
			w.calls.Observe("/", verb, time.Duration(200+i*37)*time.Microsecond, nil, nil)
		}
	}
}

// reject notes why the pod waits, as Outboard and kube-scheduler do.
func (w *world) reject(pod *corev1.Pod, all, called int, excluded map[string]int, rejections []decision.Rejection) {
	if len(rejections) > 0 {
		status := w.rejected[pod.UID]
		if status.Since.IsZero() {
			status.Since = w.now
		}
		status.LastCall, status.Nodes, status.Rejection = w.now, called, rejections[0].Brief()
		w.rejected[pod.UID] = status
	}
	for _, r := range rejections {
		excluded[r.Text] += r.Nodes
	}
	var texts []string
	for text, n := range excluded {
		texts = append(texts, fmt.Sprintf("%d %s", n, text))
	}
	slices.Sort(texts) // as kube-scheduler does
	waits := pod.DeepCopy()
	waits.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: fmt.Sprintf("0/%d nodes are available: %s.", all, strings.Join(texts, ", "))}}
	w.set(waits)
}

// bind allocates what the pod requests on the node, and binds it. It fails if the pod does not fit.
func (w *world) bind(pod *corev1.Pod, view *snapshot.View, node *snapshot.Node) error {
	b := binder.Binder{Engine: w.engine, Ledgers: w}
	reserved, err := b.Reserve(context.Background(), pod, binder.Target{View: view, Node: node})
	if err != nil {
		return err
	}
	bound := engine.WithAnnotations(pod, reserved.Annotations).DeepCopy()
	if why := w.log.Why(pod, "/", node.Name); why != "" {
		bound.Annotations[decision.Annotation] = why
	}
	bound.Spec.NodeName, bound.Status.Phase = node.Name, corev1.PodRunning
	bound.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: w.now}}}
	delete(w.rejected, pod.UID)
	w.set(bound)
	w.record(decision.Bind, &decision.Record{Pod: decision.PodOf(pod), Bound: node.Name, Nodes: 1, Fit: 1}, nil)
	return nil
}

// end removes the pod with its allocations.
func (w *world) end(pod *corev1.Pod) {
	delete(w.pods, pod.Namespace+"/"+pod.Name)
	w.builder.DeletePod(pod.UID)
	if pod.Spec.NodeName == "" {
		return
	}
	for key, l := range w.ledgers {
		if l.Pod(pod.UID) != nil {
			w.setLedger(key, *l.Without(func(uid types.UID) bool { return uid == pod.UID }))
		}
	}
}

func (w *world) setLedger(key snapshot.LedgerKey, l snapshot.Ledger) {
	w.ledgers[key] = l
	w.builder.SetLedger(&l)
}

// Allocation implements engine.Ledgers.
func (w *world) Allocate(_ context.Context, key snapshot.LedgerKey, pod *corev1.Pod, node string, choose engine.Choose) (snapshot.LedgerPod, error) {
	l, known := w.ledgers[key]
	if !known {
		l = snapshot.Ledger{Resource: key.Resource, Node: key.Node}
	}
	next, held, err := ledger.Allocate(l, snapshot.LedgerPod{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: node, Token: "1"}, choose, w.now)
	if err == nil {
		w.setLedger(key, next)
	}
	return held, err
}

// Release implements engine.Ledgers.
func (w *world) Release(_ context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	l := w.ledgers[key]
	w.setLedger(key, *l.Without(func(uid types.UID) bool { return uid == held.UID }))
	return nil
}

// Revoke implements engine.Ledgers.
func (w *world) Revoke(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	return w.Release(ctx, key, held)
}

// handlers returns what a replica serves of the world, which must not change any more.
func (w *world) handlers(name string) http.Handler {
	view := w.builder.View()
	var unbound []*corev1.Pod
	for _, pod := range w.pods {
		if pod.Spec.NodeName == "" {
			unbound = append(unbound, pod)
		}
	}
	mux := http.NewServeMux()
	known := pending.Source{
		Config: func() *config.Config { return w.config }, Places: (*config.Profile).Places,
		Rejected: func(_ string, pod types.UID) (requeue.Status, bool) { s, ok := w.rejected[pod]; return s, ok },
	}
	for pattern, h := range ui.Handlers(ui.Source{
		Name: name, Metrics: w.registry, Log: w.log,
		Checks:    func() []ui.Check { return []ui.Check{{Name: "serving"}, {Name: "cluster"}, {Name: "signals"}} },
		Warnings:  func() []string { return nil },
		Source:    known,
		Signals:   w.signals,
		View:      func() *snapshot.View { return view },
		Now:       func() time.Time { return w.now },
		CountPods: func() int { return len(w.pods) },
		Unbound:   func() []*corev1.Pod { return unbound },
		Version:   func() [2]uint64 { return [2]uint64{} },
		Audit:     func() (time.Time, []audit.Finding) { return noon.Add(-20 * time.Second), nil },
	}) {
		mux.Handle(pattern, h)
	}
	source := explain.Source{
		Log: w.log, Engines: func() map[string]*engine.Engine { return map[string]*engine.Engine{"/": w.engine} },
		View: func(types.UID) *snapshot.View { return view },
		Pod: func(_ context.Context, namespace, name string) (*corev1.Pod, error) {
			return w.pods[namespace+"/"+name], nil
		},
		Manages: func(_ string, pod *corev1.Pod) bool { return w.config.Profiles[0].Manages(pod) },
		Reason:  known.Of, Signals: w.signals,
	}
	mux.Handle("GET "+explain.Path, explain.Handler(source))
	mux.Handle("POST "+ui.TryPath, explain.TryHandler(source))
	return mux
}

func (w *world) signals() []explain.Signal {
	newest := time.Time{}
	for _, v := range w.loads {
		if v.At.After(newest) {
			newest = v.At
		}
	}
	return []explain.Signal{
		{Name: "load", Values: len(w.loads), Newest: newest},
		{Name: "price", Values: 3, Stale: 1, Newest: noon.Add(-time.Hour), Error: "GET http://prices.internal/eu: 503 Service Unavailable"},
	}
}
