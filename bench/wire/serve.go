package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/bench/baseline"
	"outboard.dev/outboard/bench/trials"
	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/internal/server"
	"outboard.dev/outboard/policies/imagelocality"
	"outboard.dev/outboard/policies/podlimit"
	"outboard.dev/outboard/snapshot"
)

// serveArgument makes the command serve one arm: wire serve NAME RECORDING.
const serveArgument = "serve"

func serve(args []string) error {
	if len(args) != 2 {
		return errors.New("serve takes the name of an arm and a recording")
	}
	name, path := args[0], args[1]
	if name == outboardArm {
		return serveOutboard(path)
	}
	handler := map[string]http.HandlerFunc{tutorialArm: baseline.Tutorial, idealArm: baseline.Ideal(0)}[name]
	if handler == nil {
		return fmt.Errorf("there is no arm %q", name)
	}
	return trials.Serve(handler)
}

// serveOutboard serves like outboard serve, with a cluster in memory instead of an API server.
func serveOutboard(path string) error {
	debug.SetGCPercent(50)
	calls, err := readRecording(path)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	handler, err := newOutboard(calls, registry)
	if err != nil {
		return err
	}
	s, err := server.New(server.Options{
		Address: "127.0.0.1:0", Handler: handler, ShutdownDelay: -1, Logger: slog.New(slog.DiscardHandler), Registerer: registry,
		Admin: server.AdminOptions{Address: "127.0.0.1:0"},
	})
	if err != nil {
		return err
	}
	if err := s.Listen(); err != nil {
		return err
	}
	fmt.Printf("http://%s\n", s.Addr())
	return s.Run(trials.UntilInputEnds())
}

// newOutboard returns a handler for the calls, and for requests that change the cluster.
func newOutboard(calls []call, registry *prometheus.Registry) (http.Handler, error) {
	c := newCluster(calls)
	policies, err := newPolicies()
	if err != nil {
		return nil, err
	}
	e, err := engine.New(engine.Options{Clock: time.Now, Policies: policies})
	if err != nil {
		return nil, err
	}
	h := extender.New(extender.Options{
		Profile: "/", Engine: e, Cluster: c, ReserveMemory: server.ReserveMemory, Log: decision.NewLog(0), Metrics: callmetrics.New(registry),
	})
	mux := http.NewServeMux()
	mux.Handle("/filter", h.Verb(decision.Filter))
	mux.Handle("/prioritize", h.Verb(decision.Prioritize))
	mux.HandleFunc(changePath, func(http.ResponseWriter, *http.Request) { c.change() })
	return mux, nil
}

// newPolicies returns two cheap policies: one compares what a pod needs with what a node has, and
// one counts pods.
func newPolicies() ([]engine.WeightedPolicy, error) {
	images, err := imagelocality.New(imagelocality.Defaults())
	if err != nil {
		return nil, err
	}
	limit := podlimit.Defaults()
	limit.Max, limit.Selector = 110, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "bench"}}
	pods, err := podlimit.New(limit)
	if err != nil {
		return nil, err
	}
	return []engine.WeightedPolicy{{Name: "ImageLocality", Weight: 1, Policy: images}, {Name: "PodLimit", Weight: 1, Policy: pods}}, nil
}

const (
	clusterNodes = 5000
	nodeImages   = 16
	// boundPods is how many pods are bound before the first one is deleted.
	boundPods = 3000
)

var nodeSize = corev1.ResourceList{
	"cpu": resource.MustParse("32"), "memory": resource.MustParse("128Gi"), "pods": resource.MustParse("110"),
}

// memoryCluster is a cluster that changes on request. It does not bind pods.
type memoryCluster struct {
	extender.Cluster
	builder snapshot.Builder
	view    atomic.Pointer[snapshot.View]
	byUID   map[types.UID]*corev1.Pod
	pods    []*corev1.Pod
	changes int
}

func newCluster(calls []call) *memoryCluster {
	c := &memoryCluster{byUID: map[types.UID]*corev1.Pod{}}
	images := newImages()
	for i := range clusterNodes {
		c.builder.SetNode(newNode(i, images))
	}
	c.view.Store(c.builder.View())
	for _, recorded := range calls {
		pod := recorded.pod
		snapshot.TrimPod(pod)
		c.byUID[pod.UID] = pod
		c.pods = append(c.pods, pod)
	}
	return c
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i%clusterNodes) }

// newNode is a node as the cluster package keeps it: all nodes share the names of their images.
func newNode(i int, images []corev1.ContainerImage) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{"rack": strconv.Itoa(i / 20)}},
		Status:     corev1.NodeStatus{Images: slices.Clone(images), Capacity: nodeSize, Allocatable: nodeSize},
	}
	snapshot.TrimNode(node)
	return node
}

func newImages() []corev1.ContainerImage {
	images := make([]corev1.ContainerImage, nodeImages)
	for k := range images {
		repository := fmt.Sprintf("registry.example.com/team-%d/service-%02d", k%5, k)
		images[k] = corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%064x", repository, k+1), fmt.Sprintf("%s:v1.%d.%d", repository, k, 3*k)},
			SizeBytes: 900e6,
		}
	}
	return images
}

// change publishes a view in which one node has another pod, as after each binding.
func (c *memoryCluster) change() {
	pod := *c.pods[c.changes%len(c.pods)]
	pod.UID = types.UID(fmt.Sprintf("bound-%d", c.changes%boundPods))
	pod.Name = string(pod.UID)
	pod.Spec.NodeName = nodeName(7919 * c.changes)
	c.changes++
	c.builder.SetPod(&pod)
	c.view.Store(c.builder.View())
}

// Synced implements extender.Cluster.
func (c *memoryCluster) Synced() error { return nil }

// View implements extender.Cluster.
func (c *memoryCluster) View() *snapshot.View { return c.view.Load() }

// ViewFor implements extender.Cluster: no pod is assumed.
func (c *memoryCluster) ViewFor(types.UID) *snapshot.View { return c.view.Load() }

// Assumed implements extender.Cluster: no filter call waits for the pod of an earlier one.
func (c *memoryCluster) Assumed(types.UID) string { return "assumed" }

// Superseded implements extender.Cluster.
func (c *memoryCluster) Superseded(*snapshot.View) <-chan struct{} { return nil }

// PodByUID implements extender.Cluster.
func (c *memoryCluster) PodByUID(uid types.UID) *corev1.Pod { return c.byUID[uid] }

// Pod implements extender.Cluster.
func (c *memoryCluster) Pod(uid types.UID, resourceVersion string) *corev1.Pod {
	if pod := c.byUID[uid]; pod != nil && pod.ResourceVersion == resourceVersion {
		return pod
	}
	return nil
}
