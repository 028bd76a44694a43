package extender_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/policies/imagelocality"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// cheap is the policy of the benchmarks: it reads one fact of each node.
type cheap struct{ pods *snapshot.Fact[int64] }

var tooMany = &policy.Reason{Code: "TooManyPods", Text: "too many pods", Unit: "pods"}

func (c cheap) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return c, nil
}

func (c cheap) Filter(n *snapshot.Node) policy.Verdict {
	if have := *c.pods.Of(n); have >= 110 {
		return policy.Verdict{Reason: tooMany, Have: have, Want: 110}
	}
	return policy.Verdict{}
}

func (c cheap) Score(n *snapshot.Node) int64 { return 100 - min(*c.pods.Of(n), 100) }

func newCheap() policy.Policy {
	return cheap{snapshot.NewFact(func(n *snapshot.Node) int64 { return int64(len(n.Pods)) })}
}

// tutorial is the usual simple handler: it decodes everything, evaluates each node, and encodes everything.
func tutorial(w http.ResponseWriter, r *http.Request) {
	var args extenderv1.ExtenderArgs
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	result := extenderv1.ExtenderFilterResult{FailedNodes: extenderv1.FailedNodesMap{}}
	nodes := &corev1.NodeList{}
	nodes.Items = append(nodes.Items, args.Nodes.Items...)
	result.Nodes = nodes
	answer, err := json.Marshal(result)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(answer)
}

// echo reads the body and returns a response as long as ours: the cost of a call without any work between.
func echo(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(body)
}

// arm is one of the servers in a comparison. Each is a separate process, so that garbage collection of one does not slow down
// another.
type arm struct {
	name   string
	url    string
	client *http.Client
	times  []time.Duration
}

// armVariable makes the test binary serve an arm instead of running tests.
const armVariable = "OUTBOARD_BENCHMARK_ARM"

func TestMain(m *testing.M) {
	if text := os.Getenv(armVariable); text != "" {
		if err := serveArm(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serveArm serves until the end of standard input.
func serveArm(text string) error {
	var name string
	var size, shortlist int
	if _, err := fmt.Sscan(text, &name, &size, &shortlist); err != nil {
		return err
	}
	var handler http.Handler
	switch name {
	case "echo":
		handler = http.HandlerFunc(echo)
	case "tutorial":
		handler = http.HandlerFunc(tutorial)
	case "gpus":
		var err error
		if handler, err = serveGPUs(size); err != nil {
			return err
		}
	default:
		var err error
		if handler, err = newHandler(benchmarkCluster(size), shortlist); err != nil {
			return err
		}
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	fmt.Println(server.URL)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func newArm(b *testing.B, name string, size, shortlist int) *arm {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", armVariable, name, size, shortlist))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stdin.Close(); cmd.Wait() })
	var url string
	if _, err := fmt.Fscanln(stdout, &url); err != nil {
		b.Fatalf("%s did not start: %v", name, err)
	}
	return &arm{name: name, url: url, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2}}}
}

func (a *arm) call(b *testing.B, body []byte, into *bytes.Buffer) {
	started := time.Now()
	res, err := a.client.Post(a.url, "application/json", bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	into.Reset()
	if _, err := into.ReadFrom(res.Body); err != nil {
		b.Fatal(err)
	}
	res.Body.Close()
	a.times = append(a.times, time.Since(started))
	if res.StatusCode != http.StatusOK {
		b.Fatalf("%s answered %s: %.200s", a.name, res.Status, into)
	}
}

func (a *arm) median() float64 {
	slices.Sort(a.times)
	return float64(a.times[len(a.times)/2])
}

func newHandler(cluster extender.Cluster, shortlist int) (http.Handler, error) {
	e, err := engine.New(engine.Options{
		Policies:  []engine.WeightedPolicy{{Name: "Cheap", Policy: newCheap(), Weight: 1}},
		Shortlist: shortlist,
	})
	if err != nil {
		return nil, err
	}
	return extender.New(extender.Options{
		Profile: "/", Engine: e, Cluster: cluster,
		Log: decision.NewLog(0), Metrics: callmetrics.New(prometheus.NewRegistry()),
	}).Verb(decision.Filter), nil
}

// benchmarkCluster has size nodes, and the pods of the calls.
func benchmarkCluster(size int) *fakeCluster {
	var builder snapshot.Builder
	for i := range size {
		node := benchmarkNode(i)
		snapshot.TrimNode(node)
		builder.SetNode(node)
	}
	cluster := &fakeCluster{view: builder.View()}
	for i := range pods {
		pod := benchmarkPod()
		pod.UID = types.UID(fmt.Sprintf(uidFormat, i))
		snapshot.TrimPod(pod)
		cluster.pods = append(cluster.pods, pod)
	}
	return cluster
}

// BenchmarkFilter measures one filter call with full nodes over loopback as the client sees it: the body is ready, and the
// response is read but not decoded. The arms take turns. Ratios are of medians: tutorial/ours and ours/echo. bench/wire
// measures calls by names, as kube-scheduler makes them.
func BenchmarkFilter(b *testing.B) {
	for _, size := range []int{500, 5000} {
		for _, shortlist := range []int{0, 1} {
			b.Run(fmt.Sprintf("nodes=%d/shortlist=%d", size, shortlist), func(b *testing.B) { benchmarkFilter(b, size, shortlist) })
		}
	}
}

func benchmarkFilter(b *testing.B, size, shortlist int) {
	list := &corev1.NodeList{}
	for i := range size {
		list.Items = append(list.Items, *benchmarkNode(i))
	}
	args := extenderv1.ExtenderArgs{Pod: benchmarkPod(), Nodes: list}
	body, err := json.Marshal(args)
	if err != nil {
		b.Fatal(err)
	}
	ours := newArm(b, "ours", size, shortlist)
	others := []*arm{newArm(b, "echo", size, shortlist), newArm(b, "tutorial", size, shortlist)}
	arms := append(others, ours)
	var into bytes.Buffer
	version := 0
	for _, a := range arms {
		a.call(b, body, &into) // warms up connections, buffers and facts
		a.times = a.times[:0]
	}
	for b.Loop() {
		for _, a := range arms {
			version++ // each call is about a new version of the pod
			a.call(b, fresh(body, version), &into)
		}
	}
	o, e, t := ours.median(), others[0].median(), others[1].median()
	b.ReportMetric(o/1e3, "ours-µs")
	b.ReportMetric(e/1e3, "echo-µs")
	b.ReportMetric(t/1e3, "tutorial-µs")
	b.ReportMetric(t/o, "tutorial/ours")
	b.ReportMetric(o/e, "ours/echo")
	b.ReportMetric(float64(len(body))/1e3, "body-kB")
	b.ReportMetric(0, "ns/op")
}

// pods is how many pods the calls use in turn: so many that no cache holds a pod until its next turn.
const (
	pods      = 512
	uidPlace  = "00000000-0000-0000-0000-000000000000"
	uidFormat = "00000000-0000-0000-0000-%012d"
)

// fresh writes the UID of another pod into the body, in place.
func fresh(body []byte, n int) []byte {
	i := bytes.Index(body, []byte(`"uid":"`)) + len(`"uid":"`)
	copy(body[i:], fmt.Sprintf(uidFormat, n%pods))
	return body
}

// BenchmarkTemplates measures one attempt by names, filter and then prioritize, in the handler: each for a pod of the next
// template, after the previous pod was placed. attempt-µs is the median.
func BenchmarkTemplates(b *testing.B) {
	for _, templates := range []int{1, 16, 100} {
		b.Run(fmt.Sprintf("templates=%d", templates), func(b *testing.B) { benchmarkTemplates(b, 5000, templates) })
	}
}

func benchmarkTemplates(b *testing.B, size, templates int) {
	image := func(i int) string { return fmt.Sprintf("registry.example.com/service-%d:v1", i) }
	var builder snapshot.Builder
	var names []string
	for i := range size {
		node := benchmarkNode(i)
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{image(i % templates)}, SizeBytes: 1 << 20})
		snapshot.TrimNode(node)
		builder.SetNode(node)
		names = append(names, node.Name)
	}
	cluster := &fakeCluster{view: builder.View()}
	d := newDifferential(b, cheapPolicies(b, imagelocality.Count, 100), 0, cluster)
	var bodies [][]byte
	for i := range templates {
		pod := benchmarkPod()
		pod.Spec.Containers[0].Image = image(i)
		body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names})
		if err != nil {
			b.Fatal(err)
		}
		bodies = append(bodies, body)
	}
	attempt := func(i int) time.Duration {
		body := fresh(bodies[i%templates], i)
		started := time.Now()
		d.post(d.filter, body)
		d.post(d.prioritize, body)
		took := time.Since(started)
		placed := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i))}}
		placed.Spec.NodeName = names[i*97%size]
		builder.SetPod(placed)
		cluster.view = builder.View()
		return took
	}
	for i := range templates {
		attempt(i)
	}
	var times []time.Duration
	for i := templates; b.Loop(); i++ {
		times = append(times, attempt(i))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2])/1e3, "attempt-µs")
	b.ReportMetric(0, "ns/op")
}
