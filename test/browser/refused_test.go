package browser

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"outboard.dev/outboard/internal/replicas"
	"outboard.dev/outboard/internal/ui"
	"outboard.dev/outboard/test/stage"
)

// viewer may list the pods of Outboard, of which there is one. Whether it may forward ports is to be added.
const viewer = `
apiVersion: v1
kind: Namespace
metadata: {name: outboard-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer, namespace: outboard-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: viewer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: viewer}]
---
apiVersion: v1
kind: Pod
metadata: {name: outboard-1, namespace: outboard-system, labels: {app.kubernetes.io/name: outboard}}
spec:
  containers:
  - {name: outboard, image: outboard, ports: [{name: metrics, containerPort: 8080}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: viewer, namespace: outboard-system}
rules:
- {apiGroups: [""], resources: [pods], verbs: [list]}
`

// A user without the permissions, and one who opens the page by a name that anybody can own, read what to do. Nothing looks as if the
// cluster were empty.
func TestRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	set, err := stage.Set(ctx, stage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := set.Stop(); err != nil {
			t.Error(err)
		}
	}()
	apply := func(manifest string) {
		t.Helper()
		cmd := set.Kubectl(ctx, "apply", "-f", "-")
		cmd.Stdin = strings.NewReader(manifest)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	apply(viewer)
	status := set.Kubectl(ctx, "patch", "pod", "outboard-1", "--namespace", replicas.Namespace, "--subresource", "status", "--patch", `{"status": {"phase": "Running"}}`)
	if out, err := status.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	user, err := set.AddUser("viewer")
	if err != nil {
		t.Fatal(err)
	}
	at := serveUI(ctx, t, set.Binary(), user.Kubeconfig)
	b := open(t)
	b.expect("502")
	b.expect("421")
	b.size(1280, 900, "light")

	says := func(text string) {
		t.Helper()
		b.until(fmt.Sprintf(`document.body.innerText.includes(%q)`, text))
	}
	for _, view := range []string{"waiting", "gpus", "held", "try", "signals", "health", "pod/default/web-1"} {
		b.navigate(at + ui.Path + "#/" + view)
		says(`No replica responds`)
		says(`outboard-1: port-forward: `)
		says(`User "viewer" cannot create resource "pods/portforward"`)
		says(`Ask an administrator of the cluster for the permissions to list pods and to create pods/portforward in the namespace of Outboard.`)
		if text := value[string](b, `document.querySelector('main').innerText`); view != "health" && strings.Count(text, "\n") > 0 {
			t.Errorf("%s: a view without data shows more than its title:\n%s", view, text)
		}
	}
	apply(viewer + "- {apiGroups: [\"\"], resources: [pods/portforward], verbs: [create]}\n")
	b.until(`/outboard-1: port-forward: /.test(document.body.innerText) && !/Ask an administrator/.test(document.body.innerText)`) // there is no kubelet
	apply(strings.Replace(viewer, "verbs: [list]", "verbs: [get]", 1))
	b.navigate(at + ui.Path + "#/waiting")
	says(`User "viewer" cannot list resource "pods"`)
	says(`Ask an administrator of the cluster for the permissions`)

	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	b.navigate("http://" + otherName + ":" + u.Port() + ui.Path)
	says(`no Host "` + otherName + ":" + u.Port() + `" here: use localhost or an IP address in the URL`)
}

// serveUI runs outboard ui for the user of the kubeconfig until the test ends, and returns the address of the page without its path.
func serveUI(ctx context.Context, t *testing.T, binary, kubeconfig string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, binary, "ui", "--kubeconfig", kubeconfig)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	_, address, found := strings.Cut(line, "The page is at ")
	if err != nil || !found {
		t.Fatalf("outboard ui says %q (%v)", line, err)
	}
	address, _, _ = strings.Cut(address, ui.Path)
	return address
}
