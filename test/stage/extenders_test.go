package stage

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func TestCalls(t *testing.T) {
	for _, tt := range []struct {
		url, address string
		want         bool
	}{
		{"https://127.0.0.1:8443", "127.0.0.1:8443", true},
		{"http://localhost:30036/my_scheduler_extension", "127.0.0.1:30036", true},
		{"https://localhost:8443/", ":8443", true},
		{"https://[::1]:8443/", "0.0.0.0:8443", true},
		{"https://10.1.2.3/gpu", "10.1.2.3:443", true},
		{"http://10.1.2.3/gpu", "10.1.2.3:80", true},
		{"https://outboard.outboard-system.svc:8443", "127.0.0.1:8443", false},
		{"http://127.0.0.1:9000", "127.0.0.1:8443", false},
		{"::", "127.0.0.1:8443", false},
	} {
		if got := calls(tt.url, tt.address); got != tt.want {
			t.Errorf("a request to %s reaches %s: %t, want %t", tt.url, tt.address, got, tt.want)
		}
	}
}

// Extenders that are not at Outboard's address keep theirs. They must listen, unless they are ignorable.
func TestForeignExtenders(t *testing.T) {
	foreign, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + foreign.Addr().String() + "/of-others"
	e := &Example{
		Outboard: "serving: {address: 127.0.0.1:8443}",
		Scheduler: `
clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf, qps: 7}
leaderElection: {leaderElect: true}
extenders:
- {urlPrefix: "https://localhost:8443/gpu", filterVerb: filter}
- {urlPrefix: "` + url + `", filterVerb: filter}
- {urlPrefix: "http://127.0.0.1:1", filterVerb: filter, ignorable: true}
`}
	if err := e.awaitForeign(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := &Outboard{URL: "https://127.0.0.1:41234", CAFile: "ca.crt"}
	text, err := o.schedulerConfig(e.Scheduler, func(prefix string) bool { return calls(prefix, "127.0.0.1:8443") })
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		ClientConnection, LeaderElection map[string]any
		Extenders                        []struct {
			URLPrefix string
			TLSConfig map[string]any
		}
	}
	if err := yaml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"https://127.0.0.1:41234/gpu", url, "http://127.0.0.1:1"} {
		if x := got.Extenders[i]; x.URLPrefix != want || (x.TLSConfig != nil) != (i == 0) {
			t.Errorf("extender %d is %+v, want %s", i, x, want)
		}
	}
	if got.LeaderElection != nil || got.ClientConnection["kubeconfig"] != nil || got.ClientConnection["qps"] == nil {
		t.Errorf("the configuration is\n%s", text)
	}

	foreign.Close()
	err = e.awaitForeign(t.Context())
	for _, want := range []string{"extenders[1]", url, "start that extender first", "serves at 127.0.0.1:8443"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want it to contain %q", err, want)
		}
	}
}

func TestReadResults(t *testing.T) {
	const readme = "Result:\n\n" + resultsHeader +
		"| `one` | `a` | it has `nginx` |\n| `two` | waits | kube-scheduler says `no room`, and `more` |\n| `three` | any | it is not for Outboard |\n\nText.\n| `no` | `row` | of it |\n"
	results, err := ReadResults(readme)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 3 {
		t.Fatalf("the results are %v", results)
	}
	placed := func(name, node, waiting string) Outcome {
		return Outcome{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}}, Waiting: waiting}
	}
	for _, good := range []Outcome{placed("one", "a", ""), placed("two", "", "0/3 nodes: 3 no room."), placed("three", "x", "")} {
		if err := results[good.Pod.Name].Check(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []Outcome{
		placed("one", "b", ""), placed("one", "", "no room"), placed("two", "a", ""), placed("two", "", "other"), placed("three", "", "no room"),
		placed("unknown", "a", ""), placed("unknown", "", ""),
	} {
		if err := results[bad.Pod.Name].Check(bad); err == nil {
			t.Errorf("%s on %q, waiting because of %q, is as the README says", bad.Pod.Name, bad.Pod.Spec.NodeName, bad.Waiting)
		}
	}
	for _, wrong := range []string{"no table", resultsHeader + "| one | a | b |\n", resultsHeader + "| `one` | waits | nobody knows why |\n"} {
		if results, err := ReadResults(wrong); err == nil {
			t.Errorf("from %q: %v", wrong, results)
		}
	}
}

// An example needs no nodes and pods, and its nodes may be a List as kubectl prints it. Folders in its folder are no files for signals.
func TestReadExample(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"outboard.yaml", "scheduler.yaml"} {
		if _, err := ReadExample(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("without %s, the error is %v", name, err)
		}
		write(name, "")
	}
	write("prices.csv", "a,1\n")
	if err := os.Mkdir(filepath.Join(dir, "original"), 0o700); err != nil {
		t.Fatal(err)
	}
	e, err := ReadExample(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Data) != 1 || string(e.Data["prices.csv"]) != "a,1\n" || len(e.Nodes)+len(e.Pods) > 0 {
		t.Errorf("the example is %+v", e)
	}
	write("pods.yaml", "kind: Pod\n---\nkind: Deployment\n")
	if _, err := ReadExample(dir); err == nil || !strings.Contains(err.Error(), `pods.yaml: document 2: the kind is "Deployment": must be Pod`) {
		t.Errorf("the error is %v", err)
	}
	write("pods.yaml", "kind: Pod\n")
	write("nodes.yaml", `apiVersion: v1
items:
- {apiVersion: v1, kind: Node, metadata: {name: a, resourceVersion: "7", uid: 5f2c}, status: {allocatable: {cpu: "4"}}}
- {apiVersion: v1, kind: Node, metadata: {name: b, resourceVersion: "8"}}
kind: List
metadata: {resourceVersion: ""}
---
{apiVersion: v1, kind: Node, metadata: {name: c}}
`)
	if e, err = ReadExample(dir); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range e.Nodes {
		names = append(names, n.Name+n.ResourceVersion)
	}
	if strings.Join(names, " ") != "a b c" || e.Nodes[0].Status.Allocatable.Cpu().Value() != 4 {
		t.Errorf("the nodes are %v, the first is %+v", names, e.Nodes[0])
	}
	write("nodes.yaml", "kind: List\nitems: [{kind: Node}, {kind: Pod}]\n")
	if _, err := ReadExample(dir); err == nil || !strings.Contains(err.Error(), `nodes.yaml: document 1: item 2: the kind is "Pod": must be Node`) {
		t.Errorf("the error is %v", err)
	}
}
