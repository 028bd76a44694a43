package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/test/stage"
)

// The pod of the explanation is one of the example's: the last one that waits, or else the last one.
func TestExplained(t *testing.T) {
	placed := func(name, waiting string) stage.Outcome {
		return stage.Outcome{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}, Waiting: waiting}
	}
	for _, tt := range []struct {
		pods []stage.Outcome
		want string
	}{
		{[]stage.Outcome{placed("a", ""), placed("b", "")}, "b"},
		{[]stage.Outcome{placed("a", "no room"), placed("b", "")}, "a"},
		{[]stage.Outcome{placed("a", "no room"), placed("b", ""), placed("c", "no room"), placed("d", "")}, "c"},
	} {
		if got := podName(explained(tt.pods)); got != tt.want {
			t.Errorf("of %d pods, %s is explained, want %s", len(tt.pods), got, tt.want)
		}
	}
	if pod := explained(nil); pod != nil {
		t.Errorf("without pods, %v is explained", pod)
	}
}

// kept is the output of a demo that runs until it is interrupted.
type kept struct {
	strings.Builder
	complete func() // called when the demo has printed all
}

func (k *kept) Write(p []byte) (int, error) {
	n, err := k.Builder.Write(p)
	if bytes.Contains(p, []byte("\nThe logs of ")) {
		k.complete()
	}
	return n, err
}

// file returns the path of this name that is printed in a line of its own, or "".
func (k *kept) file(name string) string {
	for line := range strings.Lines(k.String()) {
		if path := strings.TrimSpace(line); filepath.IsAbs(path) && filepath.Base(path) == name {
			return path
		}
	}
	return ""
}

// Steps are shown on a terminal only.
func TestProgress(t *testing.T) {
	defer func(before *os.File) { os.Stderr = before }(os.Stderr)
	for name, want := range map[string]bool{filepath.Join(t.TempDir(), "file"): false, "/dev/ptmx": true} {
		file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil && want {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		os.Stderr = file
		if newProgress().shown != want {
			t.Errorf("steps are shown in %s: %t", name, !want)
		}
	}
}

// A folder of one's own, with an extender of others beside Outboard: kube-scheduler calls both. If the other one does not run, the demo says
// so. The demo that keeps running names the files of both.
func TestOwnFolder(t *testing.T) {
	var calls atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		var args extenderv1.ExtenderArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(extenderv1.ExtenderFilterResult{NodeNames: &[]string{"b"}})
	}))
	defer other.Close()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"outboard.yaml": `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {address: "127.0.0.1:7070", insecure: true}
profiles: [{path: /mine, policies: [{type: ImageLocality}]}]
`,
		"scheduler.yaml": `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- {urlPrefix: "http://localhost:7070/mine", filterVerb: filter, nodeCacheCapable: true}
- {urlPrefix: "` + other.URL + `", filterVerb: filter, nodeCacheCapable: true}
`,
		"nodes.yaml": "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus: {allocatable: {pods: 9}}\n---\n" +
			"apiVersion: v1\nkind: Node\nmetadata: {name: b}\nstatus: {allocatable: {pods: 9}}\n",
		"pods.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: own}\nspec: {containers: [{name: main, image: main}]}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out kept
	out.complete = func() {
		for file, want := range map[string]string{"outboard-1.yaml": "/mine", "kube-scheduler-1.yaml": other.URL} {
			if text, err := os.ReadFile(out.file(file)); err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s has no %s: %v\n%s", file, want, err, text)
			}
		}
		interrupt()
	}
	if err := demo(ctx, &out, dir, "", true); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "own  b") || !strings.Contains(out.String(), "2 of 2 nodes fit") || calls.Load() == 0 {
		t.Errorf("after %d calls of the other extender, the output is\n%s", calls.Load(), out.String())
	}
	for _, program := range []string{"etcd", "kube-apiserver", "kube-scheduler-1", "outboard-1-1"} {
		if log, err := os.ReadFile(filepath.Join("../../bin/demo-logs", program+".log")); err != nil || len(log) == 0 {
			t.Errorf("the log of %s has %d bytes, %v", program, len(log), err)
		}
	}

	other.Close()
	err := demo(t.Context(), io.Discard, dir, "", false)
	if err == nil || !strings.Contains(err.Error(), "nothing listens at "+other.URL) {
		t.Errorf("without the other extender: %v", err)
	}
	if err == nil || !strings.HasSuffix(err.Error(), "bin/demo-logs/*.log") {
		t.Errorf("the error does not end with the names of the logs: %v", err)
	}
}
