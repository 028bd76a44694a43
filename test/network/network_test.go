package network

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

var full = flag.Bool("full", false, "with more pods, and faults that last longer")

// atOnce is how many scenes run in parallel unless a flag overrides it. Most of the time they wait
// for a timeout or a backoff.
const atOnce = "4"

// patience bounds a scene. On a quiet machine, it takes seconds.
const patience = 6 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	zerolog.SetGlobalLevel(zerolog.Disabled)
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

const outboardConfig = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {shutdownDelay: 0s, tls: {certFile: tls.crt, keyFile: tls.key, clientCAFile: ca.crt}}
clientConnection: {kubeconfig: %q}
profiles:
- managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}]
  policies: [{type: GPUMemory}]
`

const schedulerConfig = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
profiles: [{schedulerName: %s}]
extenders:
- urlPrefix: https://outboard
  filterVerb: filter
  prioritizeVerb: prioritize
  bindVerb: bind
  weight: 1
  nodeCacheCapable: true
  httpTimeout: 3s
  managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}]
`

// Each node has two GPUs. As many pods as fit are created: half of a GPU each.
const (
	gpuMemory = 16
	podMemory = 8
	gpuIndex  = "ALIYUN_COM_GPU_MEM_IDX"
)

// TestNetworkFaults compares what happens with docs/operations.md.
func TestNetworkFaults(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	t.Cleanup(cancel)
	set, err := stage.Set(ctx, stage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Stop(); err != nil {
			t.Error(err)
		}
	})
	rows := readPage(t, set.Root)
	for _, r := range rows {
		// The watch of a replica has the pods of all scenes, which would use up a low bandwidth.
		parallel := r.fault != "low bandwidth"
		t.Run(r.name(), func(t *testing.T) {
			if parallel {
				t.Parallel()
			}
			open(t, set, r).play()
		})
	}
}

// scene is a replica of Outboard, and a kube-scheduler that calls it, on networks of their own.
type scene struct {
	*stage.Stage
	row
	t         *testing.T
	ctx       context.Context
	started   time.Time
	name      string
	outboard  *stage.Outboard
	scheduler *controlplane.Scheduler
	links     map[string]*link
	pods      []*corev1.Pod
}

// open starts the processes, and creates nodes.
func open(t *testing.T, set *stage.Stage, r row) *scene {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	s := &scene{Stage: set, row: r, t: t, ctx: ctx, started: time.Now(), name: r.name(), links: map[string]*link{}}
	node := controlplane.NodeSpec{Name: s.name, Labels: map[string]string{"scene": s.name}, Resources: map[string]string{
		"aliyun.com/gpu-count": strconv.Itoa(s.gpus()), "aliyun.com/gpu-mem": strconv.Itoa(s.gpus() * gpuMemory),
	}}
	if err := controlplane.CreateNodes(ctx, set.Client, node.Node()); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.outboard, err = set.StartOutboard(ctx, fmt.Sprintf(outboardConfig, s.kubeconfig())); err != nil {
		t.Fatal(err)
	}
	seen := *s.outboard // as kube-scheduler sees it
	seen.URL = "https://" + s.link(toOutboard, s.outboard.URL)
	config, err := seen.SchedulerConfig(fmt.Sprintf(schedulerConfig, s.name))
	if err != nil {
		t.Fatal(err)
	}
	if s.scheduler, err = set.StartScheduler(ctx, controlplane.SchedulerOptions{Config: config}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.scheduler.Kill()
		s.outboard.Kill()
		if t.Failed() {
			log := s.scheduler.Log()
			t.Logf("outboard:\n%s\nkube-scheduler:\n%s", s.outboard.Log(), log[max(0, len(log)-8000):])
		}
	})
	return s
}

// link makes a link to the server, and returns its address.
func (s *scene) link(path, server string) string {
	s.t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		s.t.Fatal(err)
	}
	address, err := s.HoldAddress()
	if err != nil {
		s.t.Fatal(err)
	}
	s.links[path] = connect(s.t, address, u.Host)
	return address
}

// kubeconfig returns a kubeconfig with which Outboard connects to the API server through a link.
func (s *scene) kubeconfig() string {
	s.t.Helper()
	user, err := s.AddUser("outboard")
	if err != nil {
		s.t.Fatal(err)
	}
	kubeconfig, err := clientcmd.LoadFromFile(user.Kubeconfig)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, cluster := range kubeconfig.Clusters {
		cluster.Server = "https://" + s.link(toAPIServer, cluster.Server)
	}
	if err := clientcmd.WriteToFile(*kubeconfig, user.Kubeconfig); err != nil {
		s.t.Fatal(err)
	}
	return user.Kubeconfig
}

// each is how many pods there are of each kind: created during the fault, and after it. Where the
// bandwidth is low, the watch would show more changes of more pods than it can transfer.
func (s *scene) each() int {
	if *full && s.fault != "low bandwidth" {
		return 20
	}
	return 2
}

// gpus is the number of GPUs that the pods fill: two before the fault, and the others.
func (s *scene) gpus() int { return (2 + 2*s.each()) * podMemory / gpuMemory }

// play creates pods before the fault, during it and after it.
func (s *scene) play() {
	s.create("before", 2)
	s.bound(s.pods)

	s.log("the fault begins")
	before := s.metrics()
	fault := faults[s.fault]
	s.links[s.path].fail(fault)
	if s.fault == "slow close" { // it needs a side that closes
		s.restart()
		before = s.metrics()
	}
	during := s.create("during", s.each())
	if !s.waits {
		s.bound(during)
	}
	s.eventually("the pods have the events of the page", func() error { return s.checkEvents(during) })
	if s.waits || !slices.ContainsFunc(during, s.late) {
		s.eventually("the metrics are those of the page", func() error { return s.checkMetrics(before) })
	}
	s.checkFault(during)
	s.log("the fault ends")
	s.links[s.path].heal(fault)

	s.create("after", s.each())
	s.bound(s.pods)
	s.log("all pods are bound")
	s.checkCapacity()
	s.eventually("the audit is clean", s.audit)
	s.eventually("Outboard reads the cluster", s.reads)
}

// reads returns an error if Outboard cannot read the cluster.
func (s *scene) reads() error {
	if n := sum(s.metrics(), unreadable); n > 0 {
		return fmt.Errorf("%v resources are unreadable", n)
	}
	return nil
}

// log says what happens, and when.
func (s *scene) log(what string) {
	s.t.Logf("%4.1f s: %s", time.Since(s.started).Seconds(), what)
}

// restart kills Outboard, and starts it again.
func (s *scene) restart() {
	s.t.Helper()
	s.outboard.Kill()
	<-s.outboard.Done()
	if err := s.outboard.Start(s.ctx); err != nil {
		s.t.Fatal(err)
	}
}

const unreadable = "outboard_cluster_unreadable"

// checkFault checks what else holds until the fault ends.
func (s *scene) checkFault(during []*corev1.Pod) {
	s.t.Helper()
	for _, pod := range s.read(during) {
		if s.waits == (pod.Spec.NodeName != "") {
			s.t.Errorf("%s is on node %q", pod.Name, pod.Spec.NodeName)
		}
	}
	switch {
	case s.path == toOutboard:
		s.eventually("Outboard reads the cluster beside the fault", s.reads)
	case slices.Contains(s.row.metrics, unreadable):
		s.eventually("/readyz has the error", s.readyzWarns)
	case *full && s.waits: // packets are lost for a minute
		s.eventually("Outboard notices that it cannot read the cluster", s.readyzWarns)
	}
}

// readyzWarns returns an error unless /readyz says that the replica is ready, and that the API
// server does not respond.
func (s *scene) readyzWarns() error {
	text, status := s.get(http.DefaultClient, s.outboard.Admin+"/readyz")
	if status != http.StatusOK || !strings.Contains(text, "the API server does not respond") {
		return fmt.Errorf("/readyz: %d %s", status, text)
	}
	return nil
}

func (s *scene) audit() error {
	out, err := exec.CommandContext(s.ctx, s.Binary(), "gpus", "--audit", "--kubeconfig", s.Kubeconfig()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// create creates pods that each request half of a GPU of the scene's node.
func (s *scene) create(when string, count int) []*corev1.Pod {
	s.t.Helper()
	var pods []*corev1.Pod
	for i := range count {
		pod, err := s.Client.CoreV1().Pods("default").Create(s.ctx, controlplane.PodSpec{
			Name: fmt.Sprintf("%s-%s-%d", s.name, when, i), SchedulerName: s.name, NodeSelector: map[string]string{"scene": s.name},
			Resources: map[string]string{"aliyun.com/gpu-mem": strconv.Itoa(podMemory)},
		}.Pod(), metav1.CreateOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		pods = append(pods, pod)
	}
	s.pods = append(s.pods, pods...)
	return pods
}

// bound waits until all pods are bound.
func (s *scene) bound(pods []*corev1.Pod) {
	s.t.Helper()
	for _, pod := range pods {
		if _, err := controlplane.WaitForPodBound(s.ctx, s.Client, pod); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *scene) read(pods []*corev1.Pod) []*corev1.Pod {
	s.t.Helper()
	var read []*corev1.Pod
	for _, pod := range pods {
		now, err := s.Client.CoreV1().Pods(pod.Namespace).Get(s.ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		read = append(read, now)
	}
	return read
}

// checkCapacity counts what the pods have of each GPU.
func (s *scene) checkCapacity() {
	s.t.Helper()
	has := map[string]int{}
	for _, pod := range s.read(s.pods) {
		gpu := pod.Annotations[gpuIndex]
		if index, err := strconv.Atoi(gpu); err != nil || index < 0 || index >= s.gpus() {
			s.t.Errorf("%s has the GPU %q", pod.Name, gpu)
		}
		if has[gpu] += podMemory; has[gpu] > gpuMemory {
			s.t.Errorf("GPU %s has pods with %d, and memory of %d", gpu, has[gpu], gpuMemory)
		}
	}
}

// late reports whether a call for the pod took longer than httpTimeout. Then the pod may be bound
// and kube-scheduler does not report it.
func (s *scene) late(pod *corev1.Pod) bool {
	s.t.Helper()
	return slices.ContainsFunc(s.events(pod), func(event string) bool { return strings.Contains(event, "exceeded") })
}

// checkEvents returns an error unless each of the page's texts is in an event of each pod.
func (s *scene) checkEvents(pods []*corev1.Pod) error {
	for _, pod := range pods {
		if !s.waits && s.late(pod) {
			continue
		}
		found := s.events(pod)
		for _, text := range s.row.events {
			if !slices.ContainsFunc(found, func(event string) bool { return strings.Contains(event, text) }) {
				return fmt.Errorf("no event of %s contains %q: %q", pod.Name, text, found)
			}
		}
	}
	return nil
}

// events returns the reasons and messages of the pod's events.
func (s *scene) events(pod *corev1.Pod) []string {
	s.t.Helper()
	list, err := s.Client.CoreV1().Events(pod.Namespace).List(s.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod.Name})
	if err != nil {
		s.t.Fatal(err)
	}
	var texts []string
	for _, event := range list.Items {
		texts = append(texts, event.Reason+": "+event.Message)
	}
	return texts
}

// checkMetrics returns an error unless each of the page's metrics is more than before.
func (s *scene) checkMetrics(before map[string]float64) error {
	now := s.metrics()
	for _, metric := range s.row.metrics {
		if sum(now, metric) <= sum(before, metric) {
			return fmt.Errorf("%s is %v, and was %v", metric, sum(now, metric), sum(before, metric))
		}
	}
	return nil
}

// sum adds up the values with the metric's name that have its labels.
func sum(values map[string]float64, metric string) (total float64) {
	name, labels, _ := strings.Cut(strings.TrimSuffix(metric, "}"), "{")
	for series, value := range values {
		is, has, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
		lacks := func(label string) bool { return label != "" && !slices.Contains(strings.Split(has, ","), label) }
		if is == name && !slices.ContainsFunc(strings.Split(labels, ","), lacks) {
			total += value
		}
	}
	return total
}

// metrics returns the metrics of Outboard and of kube-scheduler.
func (s *scene) metrics() map[string]float64 {
	s.t.Helper()
	values := map[string]float64{}
	own, _ := s.get(http.DefaultClient, s.outboard.Admin+"/metrics")
	schedulers, _ := s.get(s.scheduler.Client(), s.scheduler.URL()+"/metrics")
	for line := range strings.Lines(own + schedulers) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if number, err := strconv.ParseFloat(value, 64); err == nil {
			values[series] = number
		}
	}
	return values
}

func (s *scene) get(client *http.Client, address string) (text string, status int) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(body), resp.StatusCode
}

// eventually waits until there is no error.
func (s *scene) eventually(what string, check func() error) {
	s.t.Helper()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-s.ctx.Done():
			s.t.Fatalf("waiting until %s: %v", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
