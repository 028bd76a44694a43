package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/server"
	"outboard.dev/outboard/internal/service"
)

// While a preempt call waits for the API server, its memory for decoding is free for other calls, as the metrics show.
func TestPreemptFreesMemoryWhileTheAPIServerResponds(t *testing.T) {
	node := func(name string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}}}
	}
	pod := func(name string, priority int32, on string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "1"}, Spec: corev1.PodSpec{NodeName: on, Priority: &priority}}
	}
	evicted, other, important := pod("evicted", 0, "n"), pod("other", 0, "m"), pod("important", 1000, "")
	evicted.DeletionTimestamp, evicted.Finalizers = &metav1.Time{Time: metav1.Now().Time}, []string{"example.com/wait"}
	important.Status.NominatedNodeName = "n"
	client := fake.NewClientset(node("n"), node("m"), evicted, other, important)
	asked, respond := make(chan struct{}), make(chan struct{})
	client.PrependReactor("get", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		asked <- struct{}{}
		<-respond
		return true, nil, apierrors.NewNotFound(corev1.Resource("pods"), "evicted")
	})
	registry := prometheus.NewRegistry()
	post := serveProfile(t, "{type: PodLimit, config: {max: 1, selector: {}}}", client, registry)

	if answer := post("filter", extenderv1.ExtenderArgs{Pod: important, NodeNames: &[]string{"n"}}); !strings.Contains(answer, `"NodeNames":[]`) {
		t.Fatalf("the pod fits beside the evicted one: %s", answer)
	}
	answer := make(chan string)
	go func() {
		victims := map[string]*extenderv1.MetaVictims{"m": {Pods: []*extenderv1.MetaPod{{UID: "other"}}}}
		answer <- post("preempt", extenderv1.ExtenderPreemptionArgs{Pod: important, NodeNameToMetaVictims: victims})
	}()
	<-asked
	if reserved := gauge(t, registry, "outboard_server_reserved_bytes"); reserved == 0 || reserved > 16<<10 {
		t.Errorf("while it waits, the call holds %v bytes", reserved)
	}
	close(respond)
	if got, want := <-answer, `{"NodeNameToMetaVictims":{}}`; got != want {
		t.Errorf("preempt returns %s, want %s", got, want)
	}
	if reserved := gauge(t, registry, "outboard_server_reserved_bytes"); reserved != 0 {
		t.Errorf("afterwards the call holds %v bytes", reserved)
	}
}

// serveProfile serves a profile with one policy, and returns a function that calls a verb and returns the response.
func serveProfile(t *testing.T, policy string, client *fake.Clientset, registry *prometheus.Registry) (post func(verb string, args any) string) {
	t.Helper()
	text := "{apiVersion: outboard.dev/v1alpha1, kind: OutboardConfiguration, serving: {insecure: true}, profiles: [{policies: [" + policy + "]}]}"
	c, err := config.Parse("test", []byte(text), typesOf(nil))
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServing(service.Options{
		Config: c, Types: typesOf(nil), Connection: service.Connection{Cluster: follow(t, client)}, Registry: registry, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	options := s.serverOptions(c)
	options.Address, options.Admin.Address, options.ShutdownDelay = "127.0.0.1:0", "127.0.0.1:0", -1
	srv, err := server.New(options)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(verb string, args any) string {
		body, err := json.Marshal(args)
		if err != nil {
			return err.Error()
		}
		response, err := http.Post(fmt.Sprintf("http://%s/%s", srv.Addr(), verb), "application/json", bytes.NewReader(body))
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err != nil {
			return err.Error()
		}
		return string(answer)
	}
}

// gauge returns the value of a gauge.
func gauge(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
