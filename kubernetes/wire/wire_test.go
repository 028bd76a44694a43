package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what kube-scheduler sends and reads")

// A vector is a response, and what kube-scheduler reads in it.
type vector struct {
	Name string `json:"name"`
	// Call names the file in testdata/requests with the request.
	Call string `json:"call"`
	// Status is that of the HTTP response; absent: 200.
	Status int `json:"status,omitempty"`
	// Response is the body.
	Response string `json:"response"`
	// Read is what kube-scheduler reads.
	Read string `json:"read"`
}

// Nodes and pods of all calls.
var (
	nodes = []fwk.NodeInfo{node("node-a", victim("victim-1"), victim("victim-2")), node("node-b", victim("victim-3"))}
	pod   = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "5d2c9f0e-0001", ResourceVersion: "7", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{SchedulerName: "default-scheduler", Containers: []corev1.Container{{
			Name: "main", Image: "nginx", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("500m")}},
		}}},
	}
)

func node(name string, pods ...*corev1.Pod) fwk.NodeInfo {
	info := framework.NewNodeInfo(pods...)
	info.SetNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{"kubernetes.io/hostname": name}},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4"), "pods": resource.MustParse("110")}},
	})
	return info
}

func victim(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-of-" + name)}}
}

// lister finds the nodes for ProcessPreemption.
type lister struct{ fwk.NodeInfoLister }

func (lister) Get(name string) (fwk.NodeInfo, error) {
	for _, n := range nodes {
		if n.Node().Name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("node %q not found", name)
}

// calls make each call with kube-scheduler's client, and return what it reads.
var calls = map[string]func(e fwk.Extender) (string, error){
	"filter-names":     filter,
	"filter-nodes":     filter,
	"prioritize-names": prioritize,
	"prioritize-nodes": prioritize,
	"preempt-names":    preempt,
	"preempt-nodes":    preempt,
	"bind": func(e fwk.Extender) (string, error) {
		return "bound", e.Bind(&corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-a"},
		})
	},
}

func filter(e fwk.Extender) (string, error) {
	fit, failed, unresolvable, err := e.Filter(pod, nodes)
	var names []string
	for _, n := range fit {
		names = append(names, n.Node().Name)
	}
	return fmt.Sprintf("fit: %s; failed: %s; unresolvable: %s", list(names), reasons(failed), reasons(unresolvable)), err
}

func prioritize(e fwk.Extender) (string, error) {
	scores, _, err := e.Prioritize(pod, nodes)
	if err != nil {
		return "", err
	}
	var texts []string
	for _, s := range *scores {
		texts = append(texts, fmt.Sprintf("%s %d", s.Host, s.Score))
	}
	return "scores: " + list(texts), nil
}

func preempt(e fwk.Extender) (string, error) {
	victims, err := e.ProcessPreemption(pod, map[string]*extenderv1.Victims{
		"node-a": {Pods: []*corev1.Pod{victim("victim-1")}, NumPDBViolations: 1}, "node-b": {Pods: []*corev1.Pod{victim("victim-3")}},
	}, lister{})
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(victims)) {
		var pods []string
		for _, p := range victims[name].Pods {
			pods = append(pods, p.Name)
		}
		texts = append(texts, fmt.Sprintf("%s: %s, %d violations", name, list(pods), victims[name].NumPDBViolations))
	}
	return "victims: " + list(texts), err
}

func list(texts []string) string {
	if len(texts) == 0 {
		return "none"
	}
	return strings.Join(texts, ", ")
}

func reasons(m extenderv1.FailedNodesMap) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		texts = append(texts, fmt.Sprintf("%s (%s)", name, m[name]))
	}
	return list(texts)
}

// serve makes the call to a server that responds so, and returns the request's body and what kube-scheduler reads.
func serve(t *testing.T, v vector) (request []byte, read string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		request = body
		w.WriteHeader(max(v.Status, http.StatusOK))
		_, _ = io.WriteString(w, v.Response)
	}))
	defer server.Close()
	e, err := scheduler.NewHTTPExtender(&schedulerapi.Extender{
		URLPrefix: server.URL, FilterVerb: "filter", PrioritizeVerb: "prioritize", PreemptVerb: "preempt", BindVerb: "bind", Weight: 1,
		NodeCacheCapable: !strings.HasSuffix(v.Call, "-nodes"),
	})
	if err != nil {
		t.Fatal(err)
	}
	call, known := calls[v.Call]
	if !known {
		t.Fatalf("no call %q", v.Call)
	}
	defer func() {
		if p := recover(); p != nil {
			read = "kube-scheduler panics"
		}
	}()
	text, err := call(e)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return request, text
	case errors.As(err, &syntax), errors.As(err, &kind), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return request, "error: the response cannot be decoded" // the text depends on the version of Go
	}
	return request, "error: " + strings.ReplaceAll(err.Error(), server.URL, "URL")
}

const responsesFile = "testdata/responses.yaml"

// What kube-scheduler's client reads in each response is in the file.
func TestResponses(t *testing.T) {
	data, err := os.ReadFile(responsesFile)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := yaml.UnmarshalStrict(data, &vectors); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, v := range vectors {
		if seen[v.Name] {
			t.Errorf("two responses have the name %q", v.Name)
		}
		seen[v.Name] = true
		_, read := serve(t, v)
		if read != v.Read && !*update {
			t.Errorf("%s: kube-scheduler reads\n%q, but the file says\n%q", v.Name, read, v.Read)
		}
		vectors[i].Read = read
	}
	if *update {
		comment, _, _ := bytes.Cut(data, []byte("\n- "))
		written, err := yaml.Marshal(vectors)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(responsesFile, slices.Concat(comment, []byte("\n"), written), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The files have the requests byte by byte, except for indentation.
func TestRequests(t *testing.T) {
	for name := range calls {
		request, _ := serve(t, vector{Call: name, Response: "{}"})
		var indented bytes.Buffer
		if err := json.Indent(&indented, request, "", "  "); err != nil {
			t.Fatal(err)
		}
		indented.WriteByte('\n')
		path := filepath.Join("testdata", "requests", name+".json")
		if *update {
			if err := os.WriteFile(path, indented.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || !bytes.Equal(want, indented.Bytes()) {
			t.Errorf("%v: kube-scheduler sends, other than in %s:\n%s", err, path, indented.Bytes())
		}
	}
}
