package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
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
)

// replica creates a pod of Outboard as the manifests have it, with the admin address of a process on this machine.
func (th *theater) replica(name, node, admin string, phase corev1.PodPhase) {
	th.t.Helper()
	address, err := url.Parse(admin)
	if err != nil {
		th.t.Fatal(err)
	}
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	if err != nil {
		th.t.Fatal(err)
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
	if pod, err = pods.Create(th.ctx, pod, metav1.CreateOptions{}); err == nil {
		pod.Status.Phase = phase
		_, err = pods.UpdateStatus(th.ctx, pod, metav1.UpdateOptions{})
	}
	if err != nil {
		th.t.Fatal(err)
	}
}

// filter calls the filter verb of the replica, as kube-scheduler does.
func (th *theater) filter(o *stage.Outboard, pod *corev1.Pod, node string) {
	th.t.Helper()
	body, err := json.Marshal(map[string]any{"Pod": pod, "NodeNames": []string{node}})
	if err != nil {
		th.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(th.ctx, http.MethodPost, o.URL+"/gpushare-scheduler/filter", bytes.NewReader(body))
	if err != nil {
		th.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		th.t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		th.t.Fatalf("filter: %s", res.Status)
	}
}

// run runs the command, and returns its exit status and what it prints.
func (th *theater) run(kubeconfig string, args ...string) (status int, stdout, stderr string) {
	th.t.Helper()
	var out, notes bytes.Buffer
	cmd := exec.CommandContext(th.ctx, th.Binary(), append(args, "--kubeconfig", kubeconfig)...)
	cmd.Stdout, cmd.Stderr = &out, &notes
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		th.t.Fatal(err)
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

// explain, decisions and gpus read from all replicas through the real API server and the streaming side of a kubelet. They need two
// permissions, and say which replicas do not respond, and why.
func TestCommandsReadFromAllReplicas(t *testing.T) {
	th := open(t)
	th.nodes(gpus("n1", 2, 16))
	th.host("n1", kubelet(t))
	first, second := th.outboard(gpushare), th.outboard(gpushare)
	th.apply(nil, "-f", filepath.Join(th.Root, "deploy", "namespace.yaml"))
	pod, err := th.Client.CoreV1().Pods("default").Create(th.ctx, gpuPod("web-1", 99).Pod(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	th.explainPending(first, "web-1")
	th.explainPending(second, "web-1")
	th.filter(first, pod, "n1")
	th.filter(second, pod, "n1")

	user, err := th.AddUser("operator")
	if err != nil {
		t.Fatal(err)
	}
	fails := func(what, want string) {
		t.Helper()
		th.eventually(what, func() bool { // the API server learns of permissions a moment later
			status, _, stderr := th.run(user.Kubeconfig, "explain", "web-1")
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
	th.apply([]byte(grant+`
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: operator, namespace: outboard-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: operator}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: operator}]
`), "-f", "-")
	fails("there is no replica", "namespace outboard-system has no pod of Outboard")
	th.replica("outboard-1", "n1", first.Admin, corev1.PodRunning)
	fails("the user may not forward ports", `replica outboard-1: port-forward: `)
	th.apply([]byte(grant+`- {apiGroups: [""], resources: [pods/portforward], verbs: [create]}`), "-f", "-")
	th.eventually("the user may read from the replica", func() bool {
		status, stdout, _ := th.run(user.Kubeconfig, "explain", "web-1")
		return status == 0 && strings.Contains(stdout, "replica outboard-1")
	})

	th.replica("outboard-2", "n1", second.Admin, corev1.PodRunning)
	th.replica("outboard-3", "n1", "http://127.0.0.1:1", corev1.PodRunning)
	th.replica("outboard-4", "n1", second.Admin, corev1.PodPending)
	th.replica("outboard-5", "n1", deaf(t), corev1.PodRunning)
	th.replica("outboard-6", "n1", second.Admin, corev1.PodFailed) // it has ended, so it is no replica
	for _, tt := range []struct {
		args []string
		into any
	}{
		{[]string{"explain", "web-1", "-o", "json"}, new(explain.Document)},
		{[]string{"decisions", "-o", "json"}, new([]*decision.Record)},
		{[]string{"gpus", "-o", "json"}, new(gpumemory.Report)},
		{[]string{"waiting", "-o", "json"}, new(ui.Waiting)},
	} {
		status, stdout, stderr := th.run(user.Kubeconfig, tt.args...)
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
	if _, stdout, _ := th.run(user.Kubeconfig, "decisions", "-n", "other", "-o", "json"); strings.TrimSpace(stdout) != "[]" {
		t.Errorf("decisions about pods of another namespace: %s", stdout)
	}
	if _, stdout, _ := th.run(user.Kubeconfig, "decisions", "-A"); strings.Count(stdout, "default/web-1") != 2 {
		t.Errorf("decisions of all namespaces:\n%s", stdout)
	}
	th.browse(user.Kubeconfig)
}

func deciders(records []*decision.Record) (names []string) {
	for _, r := range records {
		names = append(names, r.Replica)
	}
	return names
}
