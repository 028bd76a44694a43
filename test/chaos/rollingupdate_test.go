package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// rollout is a number of rolling updates of two replicas.
type rollout struct {
	updates       int
	shutdownDelay time.Duration
	// endpointDelay is how long a Service still sends new connections to a replica that stops.
	endpointDelay time.Duration
}

const rolloutConfig = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving:
  shutdownDelay: %s
  tls: {certFile: x, keyFile: x, clientCAFile: x}
clientConnection: {qps: 1000}
profiles:
- managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}]
  policies: [{type: GPUMemory}]
`

// endpoints are the replicas to which a Service sends new connections. Unlike a forwarder's list of
// targets, a Service does not try another replica if one does not accept the connection.
type endpoints struct {
	mu        sync.Mutex
	addresses []string
}

func (e *endpoints) add(o *stage.Outboard) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.addresses = append(slices.Clone(e.addresses), address(o))
}

func (e *endpoints) remove(o *stage.Outboard) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.addresses = slices.DeleteFunc(slices.Clone(e.addresses), func(a string) bool { return a == address(o) })
}

// one returns one of the replicas at random.
func (e *endpoints) one() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return []string{e.addresses[rand.IntN(len(e.addresses))]}
}

func address(o *stage.Outboard) string { return strings.TrimPrefix(o.URL, "https://") }

// caller calls Outboard as kube-scheduler does: filter, prioritize and bind for one pod after the
// other, over connections that stay open.
type caller struct {
	*stage.Stage
	client *http.Client
	url    string
	nodes  []string
	calls  atomic.Int64
	late   atomic.Int64 // of them, those for which the API server did not respond to a replica in time
	mu     sync.Mutex
	failed []error
}

// newCaller returns a caller with kube-scheduler's HTTP client.
func newCaller(s *stage.Stage, o *stage.Outboard, service string, nodes []string) (*caller, error) {
	config, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile}})
	if err != nil {
		return nil, err
	}
	transport := utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: config})
	// Not kube-scheduler's timeout: on a busy machine, a slow call is not a failed one.
	return &caller{Stage: s, client: &http.Client{Transport: transport, Timeout: time.Minute}, url: "https://" + service, nodes: nodes}, nil
}

// callsPerPod is how many calls place makes.
const callsPerPod = 3

// place creates a pod, and makes all calls for it. It deletes the pod afterwards.
func (c *caller) place(ctx context.Context, n int) error {
	spec := controlplane.PodSpec{Name: fmt.Sprintf("pod-%06d", n), SchedulerName: "nobody", Resources: gpuMemory(1 + int64(n%4))}
	pod, err := c.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, spec.Pod(), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	node, err := c.choose(ctx, pod)
	if err == nil {
		err = c.call(ctx, "bind", map[string]any{"PodName": pod.Name, "PodNamespace": pod.Namespace, "PodUID": pod.UID, "Node": node}, &struct{}{})
	}
	switch {
	case err == nil:
	case errors.Is(err, errLate):
		c.late.Add(1)
	default:
		c.mu.Lock()
		c.failed = append(c.failed, fmt.Errorf("%s: %w", pod.Name, err))
		c.mu.Unlock()
	}
	return controlplane.DeletePod(ctx, c.Client, pod)
}

// choose calls filter and prioritize, and returns one of the nodes at random: on the best one, all
// pods would wait for the same ledger.
func (c *caller) choose(ctx context.Context, pod *corev1.Pod) (string, error) {
	var fit struct{ NodeNames []string }
	if err := c.call(ctx, "filter", map[string]any{"Pod": pod, "NodeNames": c.nodes}, &fit); err != nil {
		return "", err
	}
	if len(fit.NodeNames) == 0 {
		return "", errors.New("filter: no node fits")
	}
	var scores []struct{ Host string }
	if err := c.call(ctx, "prioritize", map[string]any{"Pod": pod, "NodeNames": fit.NodeNames}, &scores); err != nil {
		return "", err
	}
	return fit.NodeNames[rand.IntN(len(fit.NodeNames))], nil
}

// errLate means that a replica responded that the API server did not, because the machine is busy.
var errLate = errors.New("the API server did not respond in time")

// call makes one call, and decodes its response. An error in the response is an error.
func (c *caller) call(ctx context.Context, verb string, args, response any) error {
	c.calls.Add(1)
	body, err := json.Marshal(args)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/"+verb, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	var failure struct{ Error string }
	_ = json.Unmarshal(text, &failure) // not all responses are objects
	if res.StatusCode == http.StatusOK && strings.Contains(failure.Error, context.DeadlineExceeded.Error()) {
		return errLate
	}
	if res.StatusCode != http.StatusOK || failure.Error != "" {
		return fmt.Errorf("%s: status %d: %s", verb, res.StatusCode, text)
	}
	return json.Unmarshal(text, response)
}

// run places pods at 100 calls per second, until ctx ends or the test cannot create pods. It has at
// most 16 pods at a time: on a busy machine the rate is lower, instead of ever more calls at a time.
func (c *caller) run(ctx context.Context) error {
	var pods sync.WaitGroup
	defer pods.Wait()
	var broken atomic.Value
	places := make(chan struct{}, 16)
	ticker := time.NewTicker(callsPerPod * time.Second / 100)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err, ok := broken.Load().(error); ok {
			return err
		}
		places <- struct{}{}
		pods.Go(func() {
			defer func() { <-places }()
			// A pod is placed to the end.
			if err := c.place(context.WithoutCancel(ctx), n); err != nil {
				broken.CompareAndSwap(nil, fmt.Errorf("pod %d: %w", n, err))
			}
		})
	}
}

// update replaces the replicas one after the other, as the Deployment of the chart does: a new one
// is ready before an old one stops.
func (r rollout) update(ctx context.Context, set *stage.Stage, service *endpoints, replicas []*stage.Outboard) error {
	for i, old := range replicas {
		fresh, err := set.StartOutboard(ctx, fmt.Sprintf(rolloutConfig, r.shutdownDelay))
		if err != nil {
			return err
		}
		service.add(fresh)
		stopped := make(chan error)
		go func() { stopped <- old.Stop() }()
		time.Sleep(r.endpointDelay)
		service.remove(old)
		if err := <-stopped; err != nil {
			return err
		}
		if log := old.Log(); !strings.Contains(log, `"msg":"stopped"`) || strings.Contains(log, "requests cut off") {
			return fmt.Errorf("a replica did not stop properly: %s", log[max(0, len(log)-4000):])
		}
		replicas[i] = fresh
	}
	return nil
}

// During rolling updates of two replicas behind a Service, no call fails at 100 calls per second.
func TestRollingUpdate(t *testing.T) {
	r := rollout{updates: 1, shutdownDelay: 3 * time.Second, endpointDelay: time.Second}
	if *full {
		// The kubelet notices within three probes, 2 s apart, that a replica is not ready.
		r = rollout{updates: 10, shutdownDelay: 10 * time.Second, endpointDelay: 6 * time.Second}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute+time.Duration(r.updates)*time.Minute)
	defer cancel()
	set, err := stage.Set(ctx, stage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := set.Stop(); err != nil {
			t.Error(err)
		}
	}()
	var nodes []*corev1.Node
	var names []string
	for i := range 20 {
		names = append(names, nodeName(i))
		nodes = append(nodes, controlplane.NodeSpec{Name: nodeName(i), Resources: map[string]string{
			// Large GPUs: replicas release the allocations of deleted pods with a delay, and no bind call may
			// fail for lack of room.
			"aliyun.com/gpu-count": "8", "aliyun.com/gpu-mem": fmt.Sprint(8 * 100 * cardSize),
		}}.Node())
	}
	if err := controlplane.CreateNodes(ctx, set.Client, nodes...); err != nil {
		t.Fatal(err)
	}
	service := new(endpoints)
	replicas := make([]*stage.Outboard, 2)
	for i := range replicas {
		if replicas[i], err = set.StartOutboard(ctx, fmt.Sprintf(rolloutConfig, r.shutdownDelay)); err != nil {
			t.Fatal(err)
		}
		service.add(replicas[i])
	}
	calls, err := newCaller(set, replicas[0], forward(t, service.one).Address(), names)
	if err != nil {
		t.Fatal(err)
	}
	loaded, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	started := time.Now()
	go func() { ended <- calls.run(loaded) }()
	for i := range r.updates {
		before := calls.calls.Load()
		if err := r.update(ctx, set, service, replicas); err != nil {
			t.Fatal(err)
		}
		t.Logf("update %d: %d calls", i+1, calls.calls.Load()-before)
	}
	end()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	took := time.Since(started)
	if len(calls.failed) > 0 {
		t.Errorf("%d calls failed: %v", len(calls.failed), errors.Join(calls.failed[:min(10, len(calls.failed))]...))
	}
	n := calls.calls.Load()
	if n < int64(r.updates)*100 {
		t.Errorf("%d calls for %d updates are no load", n, r.updates)
	}
	c := &scene{Stage: set, t: t, ctx: ctx}
	t.Logf("%d updates in %v with %.0f calls/s, %d failed, and for %d the API server did not respond in time; %s",
		r.updates, took.Round(time.Second), float64(n)/took.Seconds(), len(calls.failed), calls.late.Load(), c.awaitReleases())
}
