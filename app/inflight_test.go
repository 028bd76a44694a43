package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/service"
	"outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// While one profile binds a pod, the others count it on its node, also after a reload, and so does what people and tools are shown.
func TestPodsInFlightAreSharedAndSurviveReloads(t *testing.T) {
	const file = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- {path: /a, policies: [{type: PodLimit, config: {max: 1, selector: {}}}]}
- {path: /b, policies: [{type: PodLimit, config: {max: 1, selector: {}}}, {type: PodsOnNodes}]}
`
	shows := policy.TypeOf("PodsOnNodes", func() podsOnNodes { return podsOnNodes{} }, func(p podsOnNodes) (policy.Policy, error) { return p, nil })
	known := typesOf([]Option{WithPolicies(append(standard.Types(), shows)...)})
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	}
	client := fake.NewClientset(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}},
	}, pod("p"), pod("q"))
	arrived, proceed := make(chan struct{}), make(chan struct{})
	client.PrependReactor("create", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		close(arrived)
		<-proceed
		return true, nil, nil
	})
	live := follow(t, client)
	c, err := config.Parse("test", []byte(file), known)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServing(service.Options{
		File: "test", Config: c, Types: known, Connection: service.Connection{Cluster: live}, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	post := func(path, body string) string {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(body)))
		return w.Body.String()
	}
	filter := func(path string) string {
		return post(path, `{"Pod":{"metadata":{"name":"q","namespace":"default","uid":"q"}},"NodeNames":["n"]}`)
	}
	admin := s.AdminOptions().Handlers
	get := func(handler http.Handler, path string) string {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Body.String()
	}
	// fitting returns on how many nodes the pod fits now by explain, for all profiles.
	fitting := func(pod string) (n int) {
		t.Helper()
		var doc explain.Document
		if err := json.Unmarshal([]byte(get(admin["GET "+explain.Path], explain.Path+"?pod="+pod)), &doc); err != nil || len(doc.Now) != 2 {
			t.Fatal(err, doc)
		}
		for _, profile := range doc.Now {
			n += profile.Fit
		}
		return n
	}
	// shown checks that p is shown on its node everywhere.
	shown := func(when string) {
		t.Helper()
		for path, handler := range map[string]http.Handler{"/b/pods": s, service.InspectPath + "/pods": admin["GET "+service.InspectPath+"/"]} {
			if got := get(handler, path); got != `{"n":["p"]}` {
				t.Errorf("%s, %s shows %s", when, path, got)
			}
		}
		if fitting("q") != 0 {
			t.Errorf("%s, explain does not count p", when)
		}
	}
	const full = `{"Nodes":null,"NodeNames":[],`
	if answer := filter("/b/filter"); strings.HasPrefix(answer, full) {
		t.Fatalf("before the bind call, q fits nowhere: %s", answer)
	}
	bound := make(chan string)
	go func() {
		bound <- post("/a/bind", `{"PodName":"p","PodNamespace":"default","PodUID":"p","Node":"n"}`)
	}()
	<-arrived
	for _, when := range []string{"before a reload", "after a reload"} {
		for _, path := range []string{"/a/filter", "/b/filter"} {
			if answer := filter(path); !strings.HasPrefix(answer, full) {
				t.Errorf("%s, %s does not count the pod that /a binds: %s", when, path, answer)
			}
		}
		shown(when)
		s.Reload([]byte(strings.Replace(file, "selector: {}", "selector: {} ", 1)))
	}
	if fitting("p") != 2 {
		t.Error("explain counts p against itself")
	}
	close(proceed)
	if answer := <-bound; answer != `{"Error":""}` {
		t.Errorf("bind: %s", answer)
	}
	if answer := filter("/b/filter"); !strings.HasPrefix(answer, full) {
		t.Errorf("when p is bound: %s", answer)
	}
	shown("when p is bound")
}

// follow returns the cluster of the client, until the end of the test.
func follow(t *testing.T, client kubernetes.Interface) *cluster.Cluster {
	t.Helper()
	live, err := cluster.New(cluster.Options{Client: client, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- live.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	if err := live.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	return live
}

// podsOnNodes shows the pods of nodes at the path pods, and applies to no pod.
type podsOnNodes struct{}

func (podsOnNodes) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return nil, nil
}

func (podsOnNodes) Inspect(view *snapshot.View, path string) (value any, found bool) {
	nodes := map[string][]string{}
	for n := range view.All() {
		for _, pod := range n.Pods {
			nodes[n.Name] = append(nodes[n.Name], pod.Name)
		}
	}
	return nodes, path == "pods"
}
