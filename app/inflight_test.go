package app

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"outboard.dev/outboard/cluster"
	"outboard.dev/outboard/config"
	"outboard.dev/outboard/service"
)

// While one profile binds a pod, the others count it on its node, also after a reload.
func TestPodsInFlightAreSharedAndSurviveReloads(t *testing.T) {
	const file = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
profiles:
- {path: /a, policies: [{type: PodLimit, config: {max: 1, selector: {}}}]}
- {path: /b, policies: [{type: PodLimit, config: {max: 1, selector: {}}}]}
`
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	}
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, pod("p"), pod("q"))
	arrived, proceed := make(chan struct{}), make(chan struct{})
	client.PrependReactor("create", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		close(arrived)
		<-proceed
		return true, nil, nil
	})
	live, err := cluster.New(cluster.Options{Client: client, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- live.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	if err := live.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("test", []byte(file), typesOf(nil))
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServing(service.Options{
		File: "test", Config: c, Types: typesOf(nil), Connection: service.Connection{Cluster: live}, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
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
		s.Reload([]byte(strings.Replace(file, "selector: {}", "selector: {} ", 1)))
	}
	close(proceed)
	if answer := <-bound; answer != `{"Error":""}` {
		t.Errorf("bind: %s", answer)
	}
	if answer := filter("/b/filter"); !strings.HasPrefix(answer, full) {
		t.Errorf("when p is bound: %s", answer)
	}
}
