package nightly

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"outboard.dev/outboard/test/theater"
)

// foreign is a Go module that contains the CRDs of another project as files.
type foreign struct {
	module, sum string // with its version, and the hash that go.sum would have
	crds        []string
}

// foreignModules have the CRDs of what the chart creates for cert-manager and the Prometheus
// Operator.
var foreignModules = []foreign{
	{"github.com/cert-manager/cert-manager@v1.21.2", "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=", []string{
		"deploy/crds/cert-manager.io_certificates.yaml", "deploy/crds/cert-manager.io_issuers.yaml",
	}},
	{"github.com/prometheus-operator/prometheus-operator@v0.85.0", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=", []string{
		"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
		"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
	}},
}

// installForeignCRDs installs them. Go downloads the modules, and they are no dependency of Outboard.
func installForeignCRDs(th *theater.Theater) {
	th.T.Helper()
	for _, f := range foreignModules {
		download := exec.CommandContext(th.Ctx, "go", "mod", "download", "-json", f.module)
		download.Dir = th.T.TempDir() // in no module
		download.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GONOSUMDB=*", "GOSUMDB=off")
		out, err := download.Output()
		if err != nil {
			th.T.Fatalf("go mod download %s: %v: %s", f.module, err, out)
		}
		var module struct{ Dir, Sum string }
		if err := json.Unmarshal(out, &module); err != nil {
			th.T.Fatal(err)
		}
		if module.Sum != f.sum {
			th.T.Fatalf("%s has the hash %s, want %s", f.module, module.Sum, f.sum)
		}
		for _, file := range f.crds {
			path := filepath.Join(module.Dir, file)
			th.Apply(nil, "--server-side", "-f", path)
			// kubectl wait fails as long as the CRD has no list of conditions.
			th.Eventually("the CRDs of "+f.module+" are established", func() bool {
				return th.Kubectl(th.Ctx, "wait", "--for=condition=Established", "--timeout=2m", "-f", path).Run() == nil
			})
		}
	}
}

// ofPods are the values of the pods of a Deployment.
func ofPods(prefix string) string {
	values := []string{
		"podAnnotations.a=b", "podLabels.a=b", "nodeSelector.a=b", "tolerations[0].key=a", "tolerations[0].operator=Exists",
		"affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=a",
		"extraEnv[0].name=A", "extraEnv[0].value=b", "extraEnvFrom[0].secretRef.name=a",
		"extraVolumes[0].name=a", "extraVolumes[0].secret.secretName=a", "extraVolumeMounts[0].name=a", "extraVolumeMounts[0].mountPath=/a",
		"extraContainers[0].name=a", "extraContainers[0].image=a",
	}
	return prefix + strings.Join(values, ","+prefix)
}

// Everything that the chart can create is valid for the API server, with the CRDs of cert-manager and the Prometheus Operator. test/helm
// installs each preset.
func TestForeignCRDs(t *testing.T) {
	// A node port that no other test creates: a dry run does not see that Restore released it.
	const nodePort = "32000"
	// The control plane, which has a time limit, starts after the program that renders has been compiled.
	render := exec.CommandContext(t.Context(), "go", "run", ".", "-set", "service.nodePort="+nodePort+",service.annotations.a=b,service.labels.a=b,imagePullSecrets[0].name=a,setSchedulerName.enabled=true,"+
		"certificates.source=CertManager,monitoring.serviceMonitor=true,monitoring.rules=true,monitoring.dashboard=true,preset=gpu-sharing,"+ofPods("")+","+ofPods("scheduler."))
	render.Dir = filepath.Join("..", "..", "tools", "render")
	var stderr bytes.Buffer
	render.Stderr = &stderr
	manifests, err := render.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	th := theater.Open(t)
	installForeignCRDs(th)
	th.Apply(nil, "-f", filepath.Join(th.Root, "deploy", "namespace.yaml"))
	th.Apply(manifests, "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-") // the stage has created some roles
}
