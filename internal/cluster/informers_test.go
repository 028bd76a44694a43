package cluster_test

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"outboard.dev/outboard/internal/cluster"
)

// A Cluster with the informers of another component has the same objects, changes none of them, and lists nothing itself.
func TestInformersOfOthers(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}
	}
	pod := &corev1.Pod{ObjectMeta: meta("p"), Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Command: []string{"run"}}}}}
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, pod, &policyv1.PodDisruptionBudget{ObjectMeta: meta("b")})
	factory := informers.NewSharedInformerFactory(client, 0)
	registry := prometheus.NewRegistry()
	live, err := cluster.New(cluster.Options{Client: fake.NewClientset(), Informers: factory, Logger: slog.New(slog.DiscardHandler), Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- live.Run(ctx) }()
	defer func() { cancel(); <-ended; factory.Shutdown() }()
	if live.Synced() == nil {
		t.Error("the cluster is synced before the informers run")
	}
	factory.Start(ctx.Done())
	if err := live.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	shows := func(what string, is func() bool) {
		t.Helper()
		for !is() {
			select {
			case <-ctx.Done():
				t.Fatalf("the view does not show %s", what)
			case <-time.After(time.Millisecond):
			}
		}
	}
	shows("the pod and the budget", func() bool {
		n := live.View().Node("n")
		return n != nil && len(n.Pods) == 1 && len(slices.Collect(live.View().DisruptionBudgets("default"))) == 1
	})
	if kept := live.View().Node("n").Pods[0]; kept.Spec.Containers[0].Command != nil {
		t.Error("the pod in the view is not trimmed")
	}
	theirs, err := factory.Core().V1().Pods().Lister().Pods("default").Get("p")
	if err != nil || theirs.Spec.Containers[0].Command == nil {
		t.Errorf("the informer's pod has changed: %v, %v", theirs, err)
	}
	changed := pod.DeepCopy()
	changed.Labels = map[string]string{"a": "b"}
	if _, err := client.CoreV1().Pods("default").Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	shows("the label", func() bool { return live.View().Node("n").Pods[0].Labels["a"] == "b" })
	if err := client.CoreV1().Pods("default").Delete(ctx, "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shows("that the pod is gone", func() bool { return len(live.View().Node("n").Pods) == 0 })

	// Nothing happens to budgets for hours: an informer does not show that the API server responds.
	families, err := registry.Gather()
	if err != nil || !slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "outboard_cluster_synced" }) {
		t.Errorf("got metrics %v, %v", families, err)
	}
	for _, f := range families {
		if f.GetName() == "outboard_cluster_last_event_age_seconds" {
			t.Errorf("got %v", f)
		}
	}
}

// informed returns a Cluster that follows informers of the client, and is synced.
func informed(t *testing.T, client *fake.Clientset) (*cluster.Cluster, informers.SharedInformerFactory) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(client, 0)
	live, err := cluster.New(cluster.Options{Client: fake.NewClientset(), Informers: factory, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- live.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended; factory.Shutdown() })
	factory.Start(ctx.Done())
	if err := live.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	return live, factory
}

// A pod that is deleted and created again with the same name while the watch is interrupted, as pods of a StatefulSet are, takes the place of
// the former one. The informer lists again then, and reports an update from one to the other.
func TestInformersOfOthersReplacePods(t *testing.T) {
	pod := func(uid types.UID, node string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0", UID: uid}, Spec: corev1.PodSpec{NodeName: node}}
	}
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	items, watches := make(chan corev1.Pod, 2), make(chan *watch.RaceFreeFakeWatcher, 2)
	items <- pod("former", "n0")
	items <- pod("new", "n1")
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Pod{<-items}}, nil
	})
	client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		w := watch.NewRaceFreeFake()
		watches <- w
		return true, w, nil
	})
	live, _ := informed(t, client)
	if live.PodByUID("former") == nil {
		t.Fatal("the cluster does not have the pod")
	}
	(<-watches).Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
	timeout := time.After(time.Minute)
	for live.PodByUID("new") == nil || len(live.View().Node("n1").Pods) == 0 {
		select {
		case <-timeout:
			t.Fatal("the view does not show the new pod")
		case <-time.After(time.Millisecond):
		}
	}
	if live.PodByUID("former") != nil || len(live.View().Node("n0").Pods) > 0 {
		t.Error("the cluster still has the former pod")
	}
}
