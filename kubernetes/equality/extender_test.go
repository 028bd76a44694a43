package equality

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
)

// verdict is the result for one node.
type verdict struct {
	Reason       string `json:",omitempty"` // "": the pod fits
	Unresolvable bool   `json:",omitempty"`
}

// decided is the decision of one side about a pod.
type decided struct {
	// Error is the error of filter; with it, all other fields are empty.
	Error string `json:",omitempty"`
	// Verdicts are those on the nodes of the call, by name; nil if the wire omits reasons.
	Verdicts map[string]verdict
	// Kept are the nodes that filter returns, in order.
	Kept []string
	// ScoreError is that of scoring, which kube-scheduler ignores.
	ScoreError string `json:",omitempty"`
	// Scores are those of the kept nodes, by name; nil without a call for them.
	Scores map[string]int64
}

// wire is an extender behind real servers, with kube-scheduler's own clients. The profile that it serves can be replaced.
type wire struct {
	handler atomic.Pointer[http.ServeMux]
	clients map[string]fwk.Extender // by how the calls contain nodes
}

// newWire starts the servers.
func newWire(t *testing.T) *wire {
	w := &wire{clients: map[string]fwk.Extender{}}
	serve := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.handler.Load().ServeHTTP(rw, r) })
	plain, secure := httptest.NewServer(serve), httptest.NewTLSServer(serve)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	for name, c := range map[string]schedulerapi.Extender{
		"by names": {URLPrefix: secure.URL, NodeCacheCapable: true, EnableHTTPS: true, TLSConfig: &schedulerapi.ExtenderTLSConfig{CAData: ca}},
		"by nodes": {URLPrefix: plain.URL},
	} {
		c.FilterVerb, c.PrioritizeVerb, c.BindVerb, c.Weight = "filter", "prioritize", "bind", 1
		c.HTTPTimeout.Duration = time.Hour // so that a slow machine has no effect
		client, err := scheduler.NewHTTPExtender(&c)
		if err != nil {
			t.Fatal(err)
		}
		w.clients[name] = client
	}
	return w
}

// serve serves a profile for the cluster from now on.
func (w *wire) serve(profile *config.Profile, e *engine.Engine, cluster extender.Cluster, ledgers engine.Ledgers) {
	o := extender.Options{
		Profile: profile.Path, Engine: e, Cluster: cluster, Ledgers: ledgers,
		Log: decision.NewLog(16), Metrics: callmetrics.New(prometheus.NewRegistry()), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for _, r := range profile.ManagedResources {
		o.ManagedResources = append(o.ManagedResources, r.Name)
	}
	h, mux := extender.New(o), http.NewServeMux()
	for _, verb := range decision.Verbs() {
		mux.Handle("/"+string(verb), h.Verb(verb))
	}
	w.handler.Store(mux)
}

// interested reports whether kube-scheduler calls the extender for the pod.
func interested(t fataler, profile *config.Profile, pod *corev1.Pod) bool {
	t.Helper()
	c := schedulerapi.Extender{URLPrefix: "http://127.0.0.1:0"}
	for _, r := range profile.ManagedResources {
		c.ManagedResources = append(c.ManagedResources, schedulerapi.ExtenderManagedResource{Name: r.Name})
	}
	e, err := scheduler.NewHTTPExtender(&c)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return e.IsInterested(pod)
}

// ask makes the calls of kube-scheduler for the pod: filter, and then prioritize with the kept nodes.
func (w *wire) ask(how string, pod *corev1.Pod, nodes []*corev1.Node) decided {
	client, infos := w.clients[how], make([]fwk.NodeInfo, len(nodes))
	for i, node := range nodes {
		info := framework.NewNodeInfo()
		info.SetNode(node)
		infos[i] = info
	}
	kept, failed, unresolvable, err := client.Filter(pod, infos)
	if err != nil {
		return decided{Error: err.Error()}
	}
	for _, reason := range unresolvable {
		if strings.HasPrefix(reason, "policy ") { // the pod makes a policy fail
			if len(unresolvable) != len(nodes) {
				return decided{Error: fmt.Sprintf("%d of %d nodes are rejected: %s", len(unresolvable), len(nodes), reason)}
			}
			return decided{Error: reason}
		}
	}
	d := decided{Verdicts: map[string]verdict{}}
	for _, info := range kept {
		d.Kept = append(d.Kept, info.Node().Name)
		d.Verdicts[info.Node().Name] = verdict{}
	}
	for name, reason := range failed {
		d.Verdicts[name] = verdict{Reason: reason}
	}
	for name, reason := range unresolvable {
		d.Verdicts[name] = verdict{Reason: reason, Unresolvable: true}
	}
	if len(kept) == 0 {
		return d
	}
	d.Scores = map[string]int64{}
	for _, name := range d.Kept {
		d.Scores[name] = 0
	}
	scores, _, err := client.Prioritize(pod, kept)
	if err != nil {
		d.Scores, d.ScoreError = nil, err.Error()
		return d
	}
	for _, s := range *scores {
		d.Scores[s.Host] += s.Score
	}
	return d
}

// bind binds the pod to the node.
func (w *wire) bind(how string, pod *corev1.Pod, node string) error {
	return w.clients[how].Bind(&corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	})
}

// oneLine is the error as the wire has it.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

var _ extender.Cluster = (*apiServer)(nil)

var _ engine.Ledgers = (*keeper)(nil)

var background = context.Background()
