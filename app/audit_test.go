package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// apiLists is an API server with ledgers, pods and nodes, in pages of one object. Each list of the
// ledgers moves to the next state.
type apiLists struct {
	looks []map[string][]string // path to objects
	at    int
}

func (a *apiLists) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	first := r.URL.Query().Get("continue") == ""
	if first && strings.HasSuffix(r.URL.Path, "/ledgers") {
		a.at++
	}
	objects, ok := a.looks[min(a.at, len(a.looks))-1][r.URL.Path]
	if r.URL.Query().Get("resourceVersion") != "" {
		http.Error(w, "from a cache", http.StatusBadRequest)
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	page, meta := []json.RawMessage{}, map[string]string{"resourceVersion": "1"}
	index := 0
	fmt.Sscan(r.URL.Query().Get("continue"), &index)
	if index < len(objects) {
		page = append(page, json.RawMessage(objects[index]))
	}
	if index+1 < len(objects) {
		meta["continue"] = fmt.Sprint(index + 1)
	}
	w.Header().Set("Content-Type", "application/json")
	kind := map[string]string{"pods": "PodList", "nodes": "NodeList", "ledgers": "LedgerList"}[path.Base(r.URL.Path)]
	json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "kind": kind, "metadata": meta, "items": page})
}

func TestAudit(t *testing.T) {
	const ledgers, pods, nodes = "/apis/outboard.dev/v1alpha1/ledgers", "/api/v1/pods", "/api/v1/nodes"
	book := func(allocations ...string) string {
		var holders []string
		for _, uid := range allocations {
			holders = append(holders, fmt.Sprintf(`{"uid":%q,"namespace":"ns","name":%q,"node":"","at":"2026-05-01T12:00:00Z","token":"t"}`, uid, uid))
		}
		return fmt.Sprintf(`{"metadata":{"name":"x"},"spec":{"resource":"x","units":[{"name":"pool","capacity":8}],"pods":[%s]}}`, strings.Join(holders, ","))
	}
	const pod = `{"metadata":{"namespace":"ns","name":"a","uid":"a"},"spec":{"nodeName":"n","containers":[{"name":"c"}]}}`
	state := func(books, podList []string) map[string][]string {
		return map[string][]string{ledgers: books, pods: podList, nodes: {`{"metadata":{"name":"n"}}`}}
	}
	clean := state([]string{book("a"), book()}, []string{pod, strings.ReplaceAll(pod, `"a"`, `"b"`)})
	leak := state([]string{book("a"), book("gone")}, []string{pod})
	small := map[string][]string{ledgers: nil,
		pods: {`{"metadata":{"namespace":"ns","name":"a","uid":"a","annotations":{"ALIYUN_COM_GPU_MEM_IDX":"1","ALIYUN_COM_GPU_MEM_POD":"12","ALIYUN_COM_GPU_MEM_DEV":"16"}},` +
			`"spec":{"nodeName":"n","containers":[{"name":"c","resources":{"limits":{"aliyun.com/gpu-mem":"12"}}}]}}`},
		nodes: {`{"metadata":{"name":"n","annotations":{"example.com/sizes":"16,8"}},"status":{"allocatable":{"aliyun.com/gpu-mem":"24","aliyun.com/gpu-count":"2"},"capacity":{"aliyun.com/gpu-mem":"24","aliyun.com/gpu-count":"2"}}}`},
	}
	simulated := file(t, header+"profiles: [{policies: [{type: GPUMemory, config: {simulatedGPUs: {count: 2, memory: 16}}}]}]\n")
	none := map[string][]string{ledgers: nil, pods: small[pods], nodes: {`{"metadata":{"name":"n"}}`}}
	sized := file(t, header+"profiles: [{policies: [{type: GPUMemory, config: {sizesFrom: {annotation: example.com/sizes}}}]}]\n")
	const quick, never = "--recheck=1ms", "--recheck=0"
	t.Setenv(adminVariable, "http://127.0.0.1:1") // the audit does not read it
	for _, tt := range []struct {
		name   string
		looks  []map[string][]string
		args   []string
		status int
		want   string
	}{
		{"clean", []map[string][]string{clean}, nil, 0, "ledgers: 2, allocations: 1, nodes: 1, pods: 2; no findings"},
		{"a leak", []map[string][]string{leak}, []string{quick}, 1, "leaked         x: ns/gone: the pod is deleted\n"},
		{"a leak, as JSON", []map[string][]string{leak}, []string{quick, "-o", "json"}, 1, `"kind": "leaked"`},
		{"a leak that goes away", []map[string][]string{leak, clean}, []string{quick}, 0, "no findings"},
		{"a leak that would go away", []map[string][]string{leak, clean}, []string{never}, 1, "leaked"},
		{"no Ledger CRD", []map[string][]string{{pods: nil, nodes: nil}}, nil, 0, "ledgers: 0, allocations: 0, nodes: 0, pods: 0; no findings"},
		{"no pods", []map[string][]string{{ledgers: nil}}, nil, 2, "listing pods"},
		{"no nodes the second time", []map[string][]string{leak, {ledgers: nil, pods: nil}}, []string{quick}, 2, "listing nodes"},
		{"a wrong value", nil, []string{"--recheck=-1s"}, 2, "must not be negative"},
		{"sizes of a configuration", []map[string][]string{small}, []string{never, "--config", sized}, 1, "overcommitted  aliyun.com/gpu-mem 1 on node n: 12 of 8 by annotations"},
		{"simulated GPUs of a configuration", []map[string][]string{none}, []string{never, "--config", simulated}, 0, "findings: 0, notes: 1"},
		{"simulated GPUs without it", []map[string][]string{none}, []string{never}, 0, "unaudited      aliyun.com/gpu-mem 1 on node n: ns/a has 12: not audited: needs --config FILE"},
		{"a wrong output", nil, []string{"-o", "xml"}, 2, `--output="xml"`},
		{"a node", nil, []string{"x"}, 2, "leave out NODE and --admin"},
		{"an admin address", nil, []string{"--admin=127.0.0.1:1"}, 2, "leave out NODE and --admin"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api := httptest.NewServer(&apiLists{looks: tt.looks})
			defer api.Close()
			kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
			text := fmt.Sprintf("{current-context: c, contexts: [{name: c, context: {cluster: c, user: c}}], clusters: [{name: c, cluster: {server: %s}}], users: [{name: c}]}", api.URL)
			if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := execute(t, append([]string{"gpus", "--audit", "--kubeconfig", kubeconfig}, tt.args...)...)
			if err != nil {
				out += err.Error()
			}
			if got := exitStatus(err); got != tt.status {
				t.Errorf("exit status %d, want %d: %s", got, tt.status, out)
			}
			if !strings.Contains(out, tt.want) {
				t.Errorf("%s\nwant: %s", out, tt.want)
			}
		})
	}
}
