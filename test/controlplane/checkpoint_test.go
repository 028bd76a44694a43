package controlplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"outboard.dev/outboard/test/controlplane"
)

// uncreated are the kinds of which testdata/left.yaml has no object, with the reason.
var uncreated = map[string]string{
	"Event": "the same objects as those of events.k8s.io",
	"PodCertificateRequest.certificates.k8s.io": "only a kubelet can create one, for a running pod",
}

// kept are the objects that exist at the checkpoint, besides those of a new cluster.
const kept = `
apiVersion: v1
kind: Namespace
metadata: {name: kept}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kept, namespace: kept}
data: {a: b}
---
apiVersion: v1
kind: Node
metadata: {name: kept}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kepts.example.outboard.dev}
spec:
  group: example.outboard.dev
  names: {kind: Kept, plural: kepts}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// customResource is an object of a kind that kept or testdata/left.yaml defines.
const customResource = `
apiVersion: example.outboard.dev/v1
kind: %s
metadata: {name: %s, finalizers: [outboard.dev/kept]}
`

// disturb changes the control plane in every way that Restore reverts, and returns the processes that it
// started.
func disturb(t *testing.T, cp *controlplane.ControlPlane) []*controlplane.Process {
	t.Helper()
	kubectl(t, cp, "", "delete", "--wait=false", "clusterrole/edit", "namespace/kept", "crd/kepts.example.outboard.dev")
	kubectl(t, cp, "", "patch", "clusterrole/view", "--type=merge", `-p={"rules":[],"metadata":{"labels":{"left":"yes"}}}`)
	kubectl(t, cp, "", "annotate", "namespace/default", "node/kept", "left=yes")
	kubectl(t, cp, "", "create", "-f", "testdata/left.yaml")
	established(t, cp, "crd/lefts.example.outboard.dev")
	kubectl(t, cp, fmt.Sprintf(customResource, "Left", "left"), "create", "-f", "-")
	scheduler, err := cp.StartScheduler(t.Context(), controlplane.SchedulerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if scheduler.Name() != "kube-scheduler-1" {
		t.Errorf("the first scheduler is %s", scheduler.Name())
	}
	user, err := cp.AddUser("left")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(cp.Dir(), "left", "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if list(t, cp.Dir())[user.Kubeconfig] == "" {
		t.Errorf("%s does not exist", user.Kubeconfig)
	}
	return []*controlplane.Process{scheduler.Process, runProcess(t, cp, "left")}
}

func TestRestore(t *testing.T) {
	cp := planeOf(t, controlplane.Options{})
	kubectl(t, cp, kept, "create", "-f", "-")
	established(t, cp, "crd/kepts.example.outboard.dev")
	kubectl(t, cp, fmt.Sprintf(customResource, "Kept", "kept"), "create", "-f", "-")
	lasting := runProcess(t, cp, "lasting")
	checkpoint, err := cp.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	objects, files := dump(t, cp), list(t, cp.Dir())

	for name, leave := range map[string]func(*controlplane.Process) error{
		"runs":      func(*controlplane.Process) error { return nil },
		"is paused": (*controlplane.Process).Pause,
		"has ended": func(p *controlplane.Process) error { p.Kill(); return nil },
	} {
		t.Run("kube-apiserver "+name, func(t *testing.T) {
			started := disturb(t, cp)
			everyKind(t, cp, objects)
			if err := leave(cp.APIServer()); err != nil {
				t.Fatal(err)
			}
			if err := cp.Restore(within(t), checkpoint); err != nil {
				t.Fatal(err)
			}
			if now := dump(t, cp); !maps.Equal(now, objects) {
				t.Errorf("the objects differ:\n%s", difference(objects, now))
			}
			if now := list(t, cp.Dir()); !maps.Equal(now, files) {
				t.Errorf("the files differ:\n%s", difference(files, now))
			}
			for _, p := range started {
				if !ended(p) {
					t.Errorf("%s still runs", p.Name())
				}
			}
			if ended(lasting) {
				t.Error("a process from before the checkpoint has ended")
			}
		})
	}
}

// keptPod and keptService are objects with parts that cannot be changed, or that the API server derives from others.
const (
	keptPod = `
apiVersion: v1
kind: Pod
metadata: {name: kept, namespace: default}
spec: {containers: [{name: main, image: nginx}]}
`
	keptService = `
apiVersion: v1
kind: Service
metadata: {name: kept, namespace: default}
spec: {ports: [{port: 80}]}
`
)

// Restore creates objects again whose changes cannot be reverted, ends graceful deletions, for which there is no kubelet, and gives a
// Service its address back. It continues etcd before it starts kube-apiserver.
func TestRestoreWhatCannotBeChanged(t *testing.T) {
	cp := planeOf(t, controlplane.Options{})
	kubectl(t, cp, kept+"---"+keptPod+"---"+keptService, "create", "-f", "-")
	checkpoint, err := cp.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	objects := dump(t, cp)
	bind := func() {
		kubectl(t, cp, `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"kept"},"target":{"kind":"Node","name":"kept"}}`,
			"create", "--raw", "/api/v1/namespaces/default/pods/kept/binding", "-f", "-")
	}
	for _, tt := range []struct {
		name    string
		disturb func()
	}{
		{"a pod is bound", bind},
		{"a bound pod is deleted gracefully", func() {
			bind()
			kubectl(t, cp, "", "delete", "--wait=false", "--grace-period=1000", "pod/kept")
		}},
		{"a new pod with a finalizer is deleted gracefully", func() {
			kubectl(t, cp, "{apiVersion: v1, kind: Pod, metadata: {name: left, namespace: default, finalizers: [outboard.dev/left]}, spec: {nodeName: kept, containers: [{name: main, image: nginx}]}}", "create", "-f", "-")
			kubectl(t, cp, "", "delete", "--wait=false", "--grace-period=1000", "pod/left")
		}},
		{"a service is deleted", func() { kubectl(t, cp, "", "delete", "service/kept") }},
		{"etcd is paused, and kube-apiserver has ended", func() {
			kubectl(t, cp, "", "annotate", "node/kept", "left=yes")
			cp.APIServer().Kill()
			if err := cp.Etcd().Pause(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.disturb()
			if err := cp.Restore(within(t), checkpoint); err != nil {
				t.Fatal(err)
			}
			if now := dump(t, cp); !maps.Equal(now, objects) {
				t.Errorf("the objects differ:\n%s", difference(objects, now))
			}
		})
	}
}

func TestRestoreWithoutEtcd(t *testing.T) {
	cp := planeOf(t, controlplane.Options{})
	checkpoint, err := cp.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cp.Etcd().Kill()
	if err := cp.Restore(within(t), checkpoint); !errors.Is(err, os.ErrProcessDone) || !strings.Contains(err.Error(), "etcd") {
		t.Errorf("error %v; want that etcd has ended", err)
	}
}

func kubectl(t *testing.T, cp *controlplane.ControlPlane, input string, args ...string) string {
	t.Helper()
	cmd := cp.Kubectl(within(t), args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// established waits until the API server serves the resource. kubectl wait fails as long as the CRD has no list of conditions.
func established(t *testing.T, cp *controlplane.ControlPlane, crd string) {
	t.Helper()
	for ctx := within(t); cp.Kubectl(ctx, "wait", "--for=condition=Established", crd).Run() != nil; {
		select {
		case <-ctx.Done():
			t.Fatalf("%s is not established: %v", crd, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func runProcess(t *testing.T, cp *controlplane.ControlPlane, name string) *controlplane.Process {
	t.Helper()
	p, err := cp.StartProcess(controlplane.Command{Name: name, Path: "/bin/sh", Args: []string{"-c", "while :; do sleep 1; done"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ended(p *controlplane.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// list returns the names of the entries of a directory, as keys.
func list(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, e := range entries {
		names[filepath.Join(dir, e.Name())] = "exists"
	}
	return names
}

// kinds returns the kinds whose objects can be created, listed and deleted, with their resources as kubectl names them.
func kinds(t *testing.T, cp *controlplane.ControlPlane) map[schema.GroupKind]string {
	t.Helper()
	found := map[schema.GroupKind]string{}
	for line := range strings.Lines(kubectl(t, cp, "", "api-resources", "--cached=false", "--no-headers", "--verbs=create,list,delete")) {
		columns := strings.Fields(line) // NAME [SHORTNAMES] APIVERSION NAMESPACED KIND
		last := len(columns) - 1
		kind := schema.FromAPIVersionAndKind(columns[last-2], columns[last]).GroupKind()
		found[kind] = schema.GroupResource{Group: kind.Group, Resource: columns[0]}.String()
	}
	return found
}

// addressRepair is the part of kube-apiserver that repairs the addresses of Services.
const addressRepair = "ipallocator-repair-controller"

// dump returns the objects of every kind, by kind and name, without what Restore does not restore. A kind
// without objects has an entry, too.
func dump(t *testing.T, cp *controlplane.ControlPlane) map[string]string {
	t.Helper()
	all := kinds(t, cp)
	var objects unstructured.UnstructuredList
	resources := strings.Join(slices.Collect(maps.Values(all)), ",")
	if err := objects.UnmarshalJSON([]byte(kubectl(t, cp, "", "get", "--all-namespaces", "--output=json", resources))); err != nil {
		t.Fatal(err)
	}
	dumped := map[string]string{}
	for kind := range all {
		dumped[kind.String()] = "served"
	}
	for _, o := range objects.Items {
		labels := o.GetLabels()
		if labels["apiserver.kubernetes.io/identity"] != "" || labels["kube-aggregator.kubernetes.io/automanaged"] != "" {
			continue
		}
		if o.Object["reportingComponent"] == addressRepair || o.Object["reportingController"] == addressRepair {
			continue // kube-apiserver may see a Service before its IPAddress
		}
		key := fmt.Sprintf("%s %s/%s", o.GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName())
		delete(o.Object, "status")
		for _, field := range []string{"resourceVersion", "generation", "managedFields"} {
			unstructured.RemoveNestedField(o.Object, "metadata", field)
		}
		text, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		dumped[key] = string(text)
	}
	return dumped
}

// everyKind fails the test unless there is a new object of every kind.
func everyKind(t *testing.T, cp *controlplane.ControlPlane, before map[string]string) {
	t.Helper()
	created := map[schema.GroupKind]bool{}
	for key := range dump(t, cp) {
		if kind, _, ok := strings.Cut(key, " "); ok && before[key] == "" {
			created[schema.ParseGroupKind(kind)] = true
		}
	}
	for kind := range kinds(t, cp) {
		if _, ok := uncreated[kind.String()]; !ok && !created[kind] {
			t.Errorf("no %s was created: add one to testdata/left.yaml", kind)
		}
	}
}

func difference(want, got map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if want[key] != got[key] {
			fmt.Fprintf(&b, "%s: %s\n  was %s\n", key, got[key], want[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[key]; !ok {
			fmt.Fprintf(&b, "%s: %s\n  was not there\n", key, got[key])
		}
	}
	return b.String()
}
