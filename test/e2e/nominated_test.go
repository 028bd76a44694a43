package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

var preemptions = flag.Int("preemptions", 20, "how many pods preempt others in TestNominatedPodsKeepTheirGPU")

// kube-scheduler evicts pods from GPUs for important pods, one by one, while smaller pods retry. By
// kube-scheduler's sum, the node always has enough left for a smaller pod, but no single GPU has.
// So a smaller pod that is bound to a node to which an important pod is nominated has taken its room. kube-scheduler evicts a second pod for an
// important one if it does not see yet that the first one is gone, or other pods are nominated to the same node. Every 50 preemptions, Outboard
// is killed and starts again.
func TestNominatedPodsKeepTheirGPU(t *testing.T) {
	th := theater.OpenFor(t, theater.Patience+time.Duration(*preemptions)*time.Second)
	if needless := keepTheirGPU(th, *preemptions, theater.GPUShare); len(needless) > *preemptions/100 {
		t.Errorf("pods preempt others, and fit on the node to which they are nominated: %s", needless)
	}
}

// kube-scheduler sees each pod, and calls Outboard about it, before Outboard's watch shows the pod.
func TestNominatedPodsKeepTheirGPUBeforeTheWatchShowsThem(t *testing.T) {
	th := theater.Open(t)
	keepTheirGPU(th, 20, theater.GPUShare+"clientConnection: {kubeconfig: "+lateWatches(th, 150*time.Millisecond)+"}\n")
}

// keepTheirGPU returns the pods that preempt others, and fit on the node to which they are nominated: Outboard may see that an evicted pod is gone
// between the filter call and the preempt call.
func keepTheirGPU(th *theater.Theater, preemptions int, config string) (needless []string) {
	const nodes, each, workers, smaller = 12, 16, 6, 12
	t := th.T
	var specs []controlplane.NodeSpec
	for n := range nodes {
		specs = append(specs, theater.GPUs(fmt.Sprintf("gpu-%02d", n), 2, each))
	}
	th.Nodes(specs...)
	th.Priority("important", 1000)
	th.Priority("top", 2000)
	runs := func(name, class, node, gpu string, units int) {
		spec := theater.GPUPod(name, units)
		spec.NodeName, spec.PriorityClass = node, class
		spec.Annotations = map[string]string{GPUIndex: gpu, gpuTaken: "true"}
		th.Create(spec)
	}
	var lows atomic.Int64
	low := func(node string) { runs(fmt.Sprintf("low-%d", lows.Add(1)), "", node, "0", each) }
	for _, n := range specs {
		runs("top-"+n.Name, "top", n.Name, "1", 12)
		low(n.Name)
	}
	o := th.Outboard(config)
	k := startSlowKubelets(th, 100*time.Millisecond) // kubelets take longer
	th.Scheduler(theater.GPUShareScheduler(o))

	trying, stop := context.WithCancel(th.Ctx)
	defer stop()
	var crowd sync.WaitGroup
	for i := range smaller {
		crowd.Go(func() { keepTrying(trying, th, fmt.Sprintf("smaller-%02d", i)) })
	}
	// What pods held that end while no replica serves is free only after reclaimAfter.
	var serving sync.RWMutex
	work := make(chan int)
	group, ctx := errgroup.WithContext(th.Ctx)
	for range workers {
		group.Go(func() error {
			for i := range work {
				spec := theater.GPUPod(fmt.Sprintf("important-%d", i), 10)
				spec.PriorityClass = "important"
				pod, err := th.Client.CoreV1().Pods("default").Create(ctx, spec.Pod(), metav1.CreateOptions{})
				if err != nil {
					return err
				}
				if pod, err = controlplane.WaitForPodBound(ctx, th.Client, pod); err != nil {
					return fmt.Errorf("%s: %w", spec.Name, err)
				}
				low(pod.Spec.NodeName) // before the deletion, so that the smaller pod cannot get the GPU in between
				serving.RLock()
				err = controlplane.DeletePod(ctx, th.Client, pod)
				serving.RUnlock()
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		defer close(work)
		for i := range preemptions {
			if i%50 == 49 {
				serving.Lock()
				o.Kill()
				err := o.Start(ctx)
				serving.Unlock()
				if err != nil {
					return err
				}
			}
			select {
			case work <- i:
			case <-ctx.Done():
				return nil
			}
		}
		return nil
	})
	err := group.Wait()
	stop()
	crowd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	p := readPreemptions(th.Scheduled.Log())
	t.Logf("%d pods preempted %d others, %d of them needlessly; other pods took what was freed %d times", preemptions, k.count(), len(p.needless), len(p.taken))
	if len(p.cycles) <= preemptions {
		t.Errorf("the log of kube-scheduler has %d pods", len(p.cycles))
	}
	if len(p.taken) > 0 {
		t.Errorf("pods were bound to nodes to which others were nominated: %s", p.taken)
	}
	return p.needless
}

// lateWatches returns a kubeconfig for an address of the API server from which events of pods arrive late.
func lateWatches(th *theater.Theater, late time.Duration) (kubeconfig string) {
	th.T.Helper()
	config := th.AdminConfig()
	api, err := url.Parse(config.Host)
	if err != nil {
		th.T.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(api)
	proxy.FlushInterval = -1
	if proxy.Transport, err = rest.TransportFor(config); err != nil {
		th.T.Fatal(err)
	}
	proxy.ModifyResponse = func(res *http.Response) error {
		if res.Request.URL.Path == "/api/v1/pods" && res.Request.URL.Query().Get("watch") != "" {
			res.Body = lateBody(res.Body, late)
		}
		return nil
	}
	server := httptest.NewServer(proxy)
	th.T.Cleanup(func() { // Outboard still watches, so Close would wait
		server.Listener.Close()
		server.CloseClientConnections()
	})
	kubeconfig = filepath.Join(th.T.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n", server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		th.T.Fatal(err)
	}
	return kubeconfig
}

// lateBody returns a body that has what the other one has, each part of it later.
func lateBody(body io.ReadCloser, late time.Duration) io.ReadCloser {
	type part struct {
		data []byte
		due  time.Time
	}
	parts := make(chan part, 10_000)
	r, w := io.Pipe()
	go func() {
		defer close(parts)
		for {
			buf := make([]byte, 32<<10)
			n, err := body.Read(buf)
			if n > 0 {
				parts <- part{buf[:n], time.Now().Add(late)}
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer body.Close()
		for p := range parts {
			time.Sleep(time.Until(p.due))
			if _, err := w.Write(p.data); err != nil {
				return
			}
		}
		w.Close()
	}()
	return r
}

// keepTrying creates a pod of 8 units of one GPU, and after a while its successor, until ctx ends.
func keepTrying(ctx context.Context, th *theater.Theater, name string) {
	for i := 0; ctx.Err() == nil; i++ {
		pod, err := th.Client.CoreV1().Pods("default").Create(ctx, theater.GPUPod(fmt.Sprintf("%s-%d", name, i), 8).Pod(), metav1.CreateOptions{})
		if err != nil {
			continue // ctx has ended
		}
		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
		// A pod that took the freed GPU must also be deleted, so that the test can continue.
		_ = controlplane.DeletePod(context.WithoutCancel(ctx), th.Client, pod)
	}
}

// slowKubelets removes deleted pods after their grace period, and counts them.
type slowKubelets struct {
	mu      sync.Mutex
	evicted map[string]bool
}

func (k *slowKubelets) count() (evicted int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.evicted)
}

func startSlowKubelets(th *theater.Theater, grace time.Duration) *slowKubelets {
	th.T.Helper()
	k := &slowKubelets{evicted: map[string]bool{}}
	w, err := th.Client.CoreV1().Pods("default").Watch(th.Ctx, metav1.ListOptions{})
	if err != nil {
		th.T.Fatal(err)
	}
	ended := make(chan struct{})
	th.T.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		// The API server ends a watch of a slow client.
		for ; th.Ctx.Err() == nil; w, err = th.Client.CoreV1().Pods("default").Watch(th.Ctx, metav1.ListOptions{}) {
			if err != nil {
				continue
			}
			for event := range w.ResultChan() {
				if pod, ok := event.Object.(*corev1.Pod); ok {
					k.see(th, pod, grace)
				}
			}
		}
	}()
	return k
}

func (k *slowKubelets) see(th *theater.Theater, pod *corev1.Pod, grace time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if strings.HasPrefix(pod.Name, "low-") && pod.DeletionTimestamp != nil && !k.evicted[pod.Name] {
		k.evicted[pod.Name] = true
		time.AfterFunc(grace, func() {
			for th.Ctx.Err() == nil { // the API server may be slow
				if err := controlplane.DeletePod(th.Ctx, th.Client, pod); err == nil || apierrors.IsNotFound(err) {
					return
				}
			}
		})
	}
}

// preemptionLog is what kube-scheduler's log, with -v=3, says about nominated pods: its scheduling cycles come one after the other, so at the
// beginning of each one the lines before it say which pods it counts on which nodes.
type preemptionLog struct {
	nominated map[string]string // the node of each nominated pod
	binding   map[string]bool   // the pods that are being bound, to nodes that the log does not say yet: the next cycle does not count them as nominated
	victims   map[string]string // the node of each evicted pod
	freed     map[string]bool   // the nodes from which kube-scheduler has seen an evicted pod go, and to which it has bound no pod since
	cycles    map[string]cycle  // the latest one of each pod
	// taken are the pods that were bound to a node in a cycle in which kube-scheduler counted another pod there.
	taken []string
	// needless are the pods that were nominated to a freed node, as the only ones, and preempt pods on another one.
	needless []string
}

// cycle is what kube-scheduler knew in the beginning of a scheduling cycle.
type cycle struct {
	nominated map[string]string
	freed     map[string]bool
}

var (
	logMessage = regexp.MustCompile(`\] "([^"]*)"`)
	logField   = regexp.MustCompile(`(pod|node|victim|nominatedNodeName|nominatingMode)="?([^"\s]*)`)
)

func readPreemptions(log string) *preemptionLog {
	p := &preemptionLog{nominated: map[string]string{}, binding: map[string]bool{}, victims: map[string]string{}, freed: map[string]bool{}, cycles: map[string]cycle{}}
	for line := range strings.Lines(log) {
		if message := logMessage.FindStringSubmatch(line); message != nil {
			fields := map[string]string{}
			for _, f := range logField.FindAllStringSubmatch(line, -1) {
				fields[f[1]] = strings.TrimPrefix(f[2], "default/")
			}
			p.read(message[1], fields)
		}
	}
	return p
}

func (p *preemptionLog) read(message string, fields map[string]string) {
	pod, node := fields["pod"], fields["node"]
	switch {
	case message == "Attempting to schedule pod":
		c := cycle{maps.Clone(p.nominated), maps.Clone(p.freed)}
		maps.DeleteFunc(c.nominated, func(other, _ string) bool { return p.binding[other] })
		if len(p.binding) > 0 { // perhaps to a freed node
			c.freed = nil
		}
		p.cycles[pod], p.binding[pod] = c, true
	case strings.HasPrefix(message, "Unable to schedule pod"), message == "Error scheduling pod; retrying", message == "Delete event for unscheduled pod":
		delete(p.binding, pod)
	case message == "the target node for the preemption is determined":
		if was := p.nominated[pod]; was != "" && p.cycles[pod].freed[was] && p.cycles[pod].count(was) == 1 {
			p.needless = append(p.needless, pod+": "+was+", "+node)
		}
		p.nominated[pod] = node
	case message == "Preemptor Pod preempted victim Pod", strings.HasPrefix(message, "Victim Pod is already being deleted"):
		p.victims[fields["victim"]] = node
	case message == "Delete event for scheduled pod" && p.victims[pod] != "":
		p.freed[p.victims[pod]] = true
	case message == "Updating pod condition and nominated node name" && fields["nominatedNodeName"] == "" && fields["nominatingMode"] == "1":
		delete(p.nominated, pod)
	case message == "Successfully bound pod to node":
		if p.nominated[pod] != node && p.cycles[pod].count(node) > 0 {
			p.taken = append(p.taken, pod+": "+node)
		}
		delete(p.nominated, pod)
		delete(p.binding, pod)
		delete(p.freed, node)
	}
}

// count returns how many pods were nominated to the node.
func (c cycle) count(node string) (pods int) {
	for _, to := range c.nominated {
		if to == node {
			pods++
		}
	}
	return pods
}
