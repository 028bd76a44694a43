package nightly

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/replicas"
	"outboard.dev/outboard/internal/ui"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

// replica creates a pod of Outboard as the manifests have it, with the admin address of a process
// on this machine.
func replica(th *theater.Theater, name, node, admin string, phase corev1.PodPhase) {
	th.T.Helper()
	address, err := url.Parse(admin)
	if err != nil {
		th.T.Fatal(err)
	}
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	if err != nil {
		th.T.Fatal(err)
	}
	no, yes := false, true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/name": "outboard"}},
		Spec: corev1.PodSpec{
			NodeName:        node,
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "outboard", Image: "outboard", Ports: []corev1.ContainerPort{{Name: replicas.PortName, ContainerPort: int32(port)}},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
	pods := th.Client.CoreV1().Pods(replicas.Namespace)
	if pod, err = pods.Create(th.Ctx, pod, metav1.CreateOptions{}); err == nil {
		pod.Status.Phase = phase
		_, err = pods.UpdateStatus(th.Ctx, pod, metav1.UpdateOptions{})
	}
	if err != nil {
		th.T.Fatal(err)
	}
}

// filter calls the filter verb of the replica, as kube-scheduler does.
func filter(th *theater.Theater, o *stage.Outboard, pod *corev1.Pod, node string) {
	th.T.Helper()
	body, err := json.Marshal(map[string]any{"Pod": pod, "NodeNames": []string{node}})
	if err != nil {
		th.T.Fatal(err)
	}
	req, err := http.NewRequestWithContext(th.Ctx, http.MethodPost, o.URL+"/gpushare-scheduler/filter", bytes.NewReader(body))
	if err != nil {
		th.T.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		th.T.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		th.T.Fatalf("filter: %s", res.Status)
	}
}

// run runs the command, and returns its exit status and what it prints.
func run(th *theater.Theater, kubeconfig string, args ...string) (status int, stdout, stderr string) {
	th.T.Helper()
	var out, notes bytes.Buffer
	cmd := exec.CommandContext(th.Ctx, th.Binary(), append(args, "--kubeconfig", kubeconfig)...)
	cmd.Stdout, cmd.Stderr = &out, &notes
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		th.T.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), notes.String()
}

// deaf returns the URL of an address that accepts connections and never responds.
func deaf(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return "http://" + listener.Addr().String()
}

// explain, decisions and gpus read from all replicas through the real API server and the streaming
// side of a kubelet. They need two permissions, and say which replicas do not respond, and why.
func TestCommandsReadFromAllReplicas(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(theater.GPUs("n1", 2, 16))
	host(th, "n1", kubelet(t))
	first, second := th.Outboard(theater.GPUShare), th.Outboard(theater.GPUShare)
	th.Apply(nil, "-f", filepath.Join(th.Root, "deploy", "namespace.yaml"))
	pod, err := th.Client.CoreV1().Pods("default").Create(th.Ctx, theater.GPUPod("web-1", 99).Pod(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	th.ExplainPending(first, "web-1")
	th.ExplainPending(second, "web-1")
	filter(th, first, pod, "n1")
	filter(th, second, pod, "n1")

	user, err := th.AddUser("operator")
	if err != nil {
		t.Fatal(err)
	}
	fails := func(what, want string) {
		t.Helper()
		th.Eventually(what, func() bool { // the API server learns of permissions a moment later
			status, _, stderr := run(th, user.Kubeconfig, "explain", "web-1")
			return status == 2 && strings.Contains(stderr, want)
		})
	}
	const grant = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: operator, namespace: outboard-system}
rules:
- {apiGroups: [""], resources: [pods], verbs: [list]}
`
	fails("the user may not list pods", "listing the pods of Outboard in namespace outboard-system: pods is forbidden")
	th.Apply([]byte(grant+`
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: operator, namespace: outboard-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: operator}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: operator}]
`), "-f", "-")
	fails("there is no replica", "namespace outboard-system has no pod of Outboard")
	replica(th, "outboard-1", "n1", first.Admin, corev1.PodRunning)
	fails("the user may not forward ports", `replica outboard-1: port-forward: `)
	th.Apply([]byte(grant+`- {apiGroups: [""], resources: [pods/portforward], verbs: [create]}`), "-f", "-")
	th.Eventually("the user may read from the replica", func() bool {
		status, stdout, _ := run(th, user.Kubeconfig, "explain", "web-1")
		return status == 0 && strings.Contains(stdout, "replica outboard-1")
	})

	replica(th, "outboard-2", "n1", second.Admin, corev1.PodRunning)
	replica(th, "outboard-3", "n1", "http://127.0.0.1:1", corev1.PodRunning)
	replica(th, "outboard-4", "n1", second.Admin, corev1.PodPending)
	replica(th, "outboard-5", "n1", deaf(t), corev1.PodRunning)
	replica(th, "outboard-6", "n1", second.Admin, corev1.PodFailed) // it has ended, so it is no replica
	for _, tt := range []struct {
		args []string
		into any
	}{
		{[]string{"explain", "web-1", "-o", "json"}, new(explain.Document)},
		{[]string{"explain", "--latest", "-o", "json"}, new([]*decision.Record)},
		{[]string{"gpus", "-o", "json"}, new(gpumemory.Report)},
		{[]string{"explain", "-o", "json"}, new(ui.Waiting)},
	} {
		status, stdout, stderr := run(th, user.Kubeconfig, tt.args...)
		if status != 0 {
			t.Errorf("%q: status %d\n%s", tt.args, status, stderr)
		}
		for _, want := range []string{
			"no response of replica outboard-3: port-forward: ", "connection refused",
			"no response of replica outboard-4: the pod is Pending",
			"no response of replica outboard-5: no response after 10s",
		} {
			if !strings.Contains(stderr, want) {
				t.Errorf("%q: %q is not in:\n%s", tt.args, want, stderr)
			}
		}
		if lines := strings.Count(stderr, "\n"); lines != 3 {
			t.Errorf("%q: %d lines:\n%s", tt.args, lines, stderr)
		}
		if err := json.Unmarshal([]byte(stdout), tt.into); err != nil {
			t.Fatalf("%q: %v\n%s", tt.args, err, stdout)
		}
		switch found := tt.into.(type) {
		case *explain.Document:
			if from := deciders(found.Decisions); !slices.Equal(found.Replicas, []string{"outboard-1", "outboard-2"}) || !slices.Equal(from, []string{"outboard-2", "outboard-1"}) || len(found.Now) != 1 {
				t.Errorf("explain: replicas %q, decisions of %q\n%s", found.Replicas, from, stdout)
			}
		case *[]*decision.Record:
			if from := deciders(*found); !slices.Equal(from, []string{"outboard-2", "outboard-1"}) {
				t.Errorf("decisions of %q\n%s", from, stdout)
			}
		case *ui.Waiting:
			if len(found.Rows) != 1 || found.Rows[0].Pod != "default/web-1" || found.Rows[0].Reason != "GPUMemory.TooLarge" {
				t.Errorf("waiting:\n%s", stdout)
			}
		case *gpumemory.Report:
			if len(found.Nodes) != 1 || len(found.Nodes[0].GPUs) != 2 {
				t.Errorf("gpus:\n%s", stdout)
			}
		}
	}
	if _, stdout, _ := run(th, user.Kubeconfig, "explain", "--latest", "-n", "other", "-o", "json"); strings.TrimSpace(stdout) != "[]" {
		t.Errorf("decisions about pods of another namespace: %s", stdout)
	}
	if _, stdout, _ := run(th, user.Kubeconfig, "explain", "--latest", "-A"); strings.Count(stdout, "default/web-1") != 2 {
		t.Errorf("decisions of all namespaces:\n%s", stdout)
	}
	browse(th, user.Kubeconfig)
}

func deciders(records []*decision.Record) (names []string) {
	for _, r := range records {
		names = append(names, r.Replica)
	}
	return names
}

// served starts outboard ui for the user of the kubeconfig, and returns the address that it prints.
func served(th *theater.Theater, kubeconfig string) string {
	th.T.Helper()
	cmd := exec.CommandContext(th.Ctx, th.Binary(), "ui", "--kubeconfig", kubeconfig)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		th.T.Fatal(err)
	}
	th.T.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	_, address, found := strings.Cut(line, "http://")
	if err != nil || !found {
		th.T.Fatalf("outboard ui says %q (%v)", line, err)
	}
	address, _, _ = strings.Cut(address, ui.Path)
	return "http://" + address
}

// ask sends a request, and returns the response and its body.
func ask(th *theater.Theater, req *http.Request) (*http.Response, []byte) {
	th.T.Helper()
	res, err := http.DefaultClient.Do(req.WithContext(th.Ctx))
	if err != nil {
		th.T.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		th.T.Fatal(err)
	}
	return res, body
}

func request(th *theater.Theater, method, address, body string) *http.Request {
	th.T.Helper()
	req, err := http.NewRequest(method, address, strings.NewReader(body))
	if err != nil {
		th.T.Fatal(err)
	}
	return req
}

// browse checks what outboard ui serves: the page, and the data of all replicas, of which
// outboard-1 and outboard-2 respond and know the waiting pod web-1.
func browse(th *theater.Theater, kubeconfig string) {
	th.T.Helper()
	t, at := th.T, served(th, kubeconfig)
	read := func(path string, into any) {
		t.Helper()
		res, body := ask(th, request(th, http.MethodGet, at+path, ""))
		if err := json.Unmarshal(body, into); res.StatusCode != http.StatusOK || err != nil {
			t.Fatalf("%s: %s, %v\n%s", path, res.Status, err, body)
		}
		if strings.Contains(string(body), ":null") {
			t.Errorf("%s: null in %s", path, body)
		}
		if res.Header.Get("Content-Security-Policy") == "" || res.Header.Get("ETag") == "" && path != ui.UnitsPath && !strings.HasPrefix(path, explain.Path) {
			t.Errorf("%s: headers %v", path, res.Header)
		}
	}
	var overview ui.Overview
	read(ui.OverviewPath, &overview)
	states := ""
	for _, r := range overview.Replicas {
		states += " " + r.Name
		if r.Error != "" {
			states += "!"
		}
	}
	if states != " outboard-1 outboard-2 outboard-3! outboard-4! outboard-5!" || len(overview.Resources) != 1 {
		t.Errorf("replicas%s, resources %v", states, overview.Resources)
	}
	var waiting ui.Waiting
	read(ui.WaitingPath, &waiting)
	if waiting.Pods != 1 || len(waiting.Rows) != 1 || waiting.Rows[0].Pod != "default/web-1" || waiting.Rows[0].Nearest == nil {
		t.Errorf("waiting: %+v", waiting)
	}
	var units ui.Units
	read(ui.UnitsPath+"?resource=aliyun.com/gpu-mem", &units)
	if len(units.Nodes) != 1 || len(units.Used) != 2 {
		t.Errorf("units: %+v", units)
	}
	var held ui.Held
	read(ui.HeldPath, &held)
	var signals ui.Signals
	read(ui.SignalsPath, &signals)
	var doc explain.Document
	read("/explain?pod=web-1", &doc)
	if len(doc.Replicas) != 2 || len(deciders(doc.Decisions)) != 2 {
		t.Errorf("explanation: %+v", doc)
	}
	try := request(th, http.MethodPost, at+explain.TryPath, "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 3}}}]}}")
	try.Header.Set("Content-Type", "application/yaml")
	res, body := ask(th, try)
	var tried explain.Tried
	if err := json.Unmarshal(body, &tried); res.StatusCode != http.StatusOK || err != nil || len(tried.Pods) != 1 || tried.Pods[0].Fits.Fit != 1 {
		t.Errorf("try: %s, %v\n%s", res.Status, err, body)
	}
	other := request(th, http.MethodGet, at+ui.OverviewPath, "")
	other.Host = "example.com"
	if res, _ := ask(th, other); res.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("another Host: %s", res.Status)
	}
	if res, body := ask(th, request(th, http.MethodGet, at+"/", "")); res.StatusCode != http.StatusOK || !strings.Contains(string(body), "<title>Outboard</title>") {
		t.Errorf("the page: %s\n%s", res.Status, body)
	}
}
