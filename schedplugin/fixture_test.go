package schedplugin

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/internal/service"
	policies "outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
	"outboard.dev/outboard/snapshot"
)

// scheduler is the part of kube-scheduler that the plugin needs: a cluster in memory, with
// NodeInfos that the test changes.
type scheduler struct {
	t      testing.TB
	client *fake.Clientset
	*plugin
	ledgers  *ledgers
	registry *prometheus.Registry

	infos      []*nodeInfo
	generation int64

	mu        sync.Mutex
	activated map[string]int
}

// handleOf is the handle of a profile of kube-scheduler that offers nothing but its name.
type handleOf struct {
	fwk.Handle
	name string
}

func (h handleOf) ProfileName() string { return h.name }

// schedule starts the plugin with the lines as its configuration, in a cluster with nodes n0, n1,
// ...
func schedule(t testing.TB, nodes int, configuration string, more ...runtime.Object) *scheduler {
	t.Helper()
	return scheduleAs(t, corev1.DefaultSchedulerName, nodes, configuration, more...)
}

// scheduleAs is schedule for a profile of kube-scheduler with another name.
func scheduleAs(t testing.TB, name string, nodes int, configuration string, more ...runtime.Object) *scheduler {
	t.Helper()
	s := &scheduler{t: t, activated: map[string]int{}}
	for i := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}}
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
		more = append(more, node)
		s.generation++
		s.infos = append(s.infos, &nodeInfo{node: node, generation: s.generation})
	}
	s.client = fake.NewClientset(more...)
	factory := informers.NewSharedInformerFactory(s.client, 0)
	live, err := cluster.New(cluster.Options{Client: s.client, Informers: factory, Devices: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	known := config.Types{Policies: policies.Types(), Signals: signals.Types(), Unserved: true}
	s.ledgers = &ledgers{Cluster: live, byName: map[string]*ledger.Object{}}
	keeper := ledger.New(ledger.Options{API: s.ledgers, Cache: live, Logger: slog.New(slog.DiscardHandler)})
	c, err := config.Parse("test", []byte(header+configuration), known)
	if err != nil {
		t.Fatal(err)
	}
	s.registry = prometheus.NewRegistry()
	made, err := newProcess(service.Options{
		Config: c, Types: known, Connection: service.Connection{Cluster: live, Keeper: keeper}, Registry: s.registry, Logger: slog.New(slog.DiscardHandler),
		Retry: func(pod *corev1.Pod) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.activated[pod.Name]++
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.plugin = newPlugin(made, arguments{}, handleOf{name: name})
	running := made.service
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	ended := make(chan error, 1)
	go func() { ended <- running.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended; factory.Shutdown() })
	if err := live.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// ledgers are the Ledgers of the API server. Pods are those of the cluster.
type ledgers struct {
	*cluster.Cluster
	mu     sync.Mutex
	byName map[string]*ledger.Object
}

func (l *ledgers) GetLedger(_ context.Context, name string) (*ledger.Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.byName[name]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(ledger.Resource.GroupResource(), name)
}

func (l *ledgers) PutLedger(_ context.Context, o *ledger.Object) (*ledger.Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stored := *o
	stored.ResourceVersion = fmt.Sprint(len(o.ResourceVersion) + 1)
	l.byName[o.Name] = &stored
	return &stored, nil
}

func (l *ledgers) DeleteLedger(_ context.Context, o *ledger.Object) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byName, o.Name)
	return nil
}

// allocations returns the pods that hold allocations.
func (l *ledgers) allocations() (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.byName {
		for _, pod := range o.Spec.Pods {
			names = append(names, pod.Name)
		}
	}
	return names
}

// state is the state of one attempt.
type state struct {
	fwk.CycleState
	data    fwk.StateData
	skipped sets.Set[string]
	group   bool
}

func (s *state) GetSkipFilterPlugins() sets.Set[string]        { return s.skipped }
func (s *state) SetSkipFilterPlugins(plugins sets.Set[string]) { s.skipped = plugins }
func (s *state) IsPodGroupSchedulingCycle() bool               { return s.group }

func (s *state) Read(key fwk.StateKey) (fwk.StateData, error) {
	if s.data == nil || key != stateKey {
		return nil, fmt.Errorf("not found")
	}
	return s.data, nil
}

func (s *state) Write(_ fwk.StateKey, data fwk.StateData) { s.data = data }

func (s *state) Clone() fwk.CycleState {
	if s.data == nil {
		return &state{}
	}
	return &state{data: s.data.Clone()}
}

func podNamed(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: labels}}
}

// attempt runs the plugin's part of an attempt to schedule the pod, including the scores of the
// remaining nodes.
func (s *scheduler) attempt(pod *corev1.Pod) (*state, map[string]int64) {
	s.t.Helper()
	ctx, st := s.t.Context(), &state{}
	var all []fwk.NodeInfo
	for _, info := range s.infos {
		all = append(all, info)
	}
	_, status := s.PreFilter(ctx, st, pod, all)
	if !status.IsSuccess() && !status.IsSkip() {
		s.t.Fatal(status.AsError())
	}
	var left []fwk.NodeInfo
	for _, info := range s.infos {
		if status.IsSkip() || s.Filter(ctx, st, pod, info).IsSuccess() {
			left = append(left, info)
		}
	}
	scores := map[string]int64{}
	if len(left) == 0 {
		s.PostFilter(ctx, st, pod, nil)
		return st, scores
	}
	scored := s.PreScore(ctx, st, pod, left)
	for _, info := range left {
		var score int64
		if !scored.IsSkip() {
			score, _ = s.Score(ctx, st, pod, info)
		}
		scores[info.Node().Name] = score
	}
	return st, scores
}

// assume puts the pod on the node, as kube-scheduler does before Reserve; forget reverts that.
func (s *scheduler) assume(pod *corev1.Pod, node int) {
	s.generation++
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = s.infos[node].node.Name
	s.infos[node].pods = append(s.infos[node].pods[:len(s.infos[node].pods):len(s.infos[node].pods)], podInfo{pod: assumed})
	s.infos[node].generation = s.generation
	requests := snapshot.PodRequests(pod)
	s.infos[node].requested.milliCPU += requests.Cpu().MilliValue()
}

func (s *scheduler) forget(pod *corev1.Pod, node int) {
	s.generation++
	var rest []fwk.PodInfo
	for _, p := range s.infos[node].pods {
		if p.GetPod().UID != pod.UID {
			rest = append(rest, p)
		}
	}
	s.infos[node].pods, s.infos[node].generation = rest, s.generation
	requests := snapshot.PodRequests(pod)
	s.infos[node].requested.milliCPU -= requests.Cpu().MilliValue()
}

// eventually waits for an asynchronous result.
func (s *scheduler) eventually(what string, is func() bool) {
	s.t.Helper()
	timeout := time.After(time.Minute)
	for !is() {
		select {
		case <-timeout:
			s.t.Fatalf("timeout: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

var logger = klog.Background()
