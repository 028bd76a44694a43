package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/explain"
)

// reading is a client that reads single pods with a function.
type reading struct {
	*fake.Clientset
	get func(context.Context) (*corev1.Pod, error)
}

func (r *reading) CoreV1() typedcorev1.CoreV1Interface { return readingCore{r.Clientset.CoreV1(), r} }

type readingCore struct {
	typedcorev1.CoreV1Interface
	*reading
}

func (c readingCore) Pods(namespace string) typedcorev1.PodInterface {
	return readingPods{c.CoreV1Interface.Pods(namespace), c.reading}
}

type readingPods struct {
	typedcorev1.PodInterface
	*reading
}

func (p readingPods) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*corev1.Pod, error) {
	return p.get(ctx)
}

// An explanation of a pod of which the cache has only a part evaluates the whole pod. If it cannot be read, the explanation says so, and
// shows no evaluation of the part. A request that has ended does not wait for the API server.
func TestExplanationsOfLargePods(t *testing.T) {
	large := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p", ResourceVersion: "1", Annotations: map[string]string{"note": strings.Repeat("x", 20<<10)}}}
	client := &reading{Clientset: fake.NewClientset(large, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})}
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
	var log bytes.Buffer
	s := newService(t, "test", header+"profiles:\n- policies: [{type: PodLimit, config: {max: 1, selector: {}}}]\n", standardTypes(), Connection{Cluster: live}, &log)
	gone, over := context.WithCancel(ctx)
	over()
	for _, tc := range []struct {
		what      string
		ctx       context.Context
		get       func(context.Context) (*corev1.Pod, error)
		known     bool
		evaluated int
		says      string
	}{
		{"it responds", ctx, func(context.Context) (*corev1.Pod, error) { return large.DeepCopy(), nil }, true, 1, ""},
		{"it does not respond", ctx, func(context.Context) (*corev1.Pod, error) { return nil, errors.New("connection refused") }, true, 0,
			"the policies cannot be asked about pod default/p now: it is so large that Outboard keeps only a part of it, and reading it from the API server failed: connection refused"},
		{"the pod is gone", ctx, func(context.Context) (*corev1.Pod, error) {
			return nil, apierrors.NewNotFound(corev1.Resource("pods"), "p")
		}, false, 0, ""},
		{"the request has ended", gone, func(ctx context.Context) (*corev1.Pod, error) { <-ctx.Done(); return nil, ctx.Err() }, true, 0,
			"the policies cannot be asked about pod default/p now: it is so large that Outboard keeps only a part of it, and reading it from the API server failed: context canceled"},
	} {
		client.get = tc.get
		w := httptest.NewRecorder()
		explain.Handler(s.Source()).ServeHTTP(w, httptest.NewRequestWithContext(tc.ctx, "GET", explain.Path+"?pod=p", nil))
		var doc explain.Document
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
			t.Fatalf("%s: %v: %s", tc.what, err, w.Body)
		}
		if doc.Known != tc.known || len(doc.Now) != tc.evaluated || doc.Error != tc.says {
			t.Errorf("%s: known: %t, evaluated by %d profiles, error %q", tc.what, doc.Known, len(doc.Now), doc.Error)
		}
	}
}
