package theater

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Install applies the manifests as a user does. The stage has installed the CRD.
func (th *Theater) Install() {
	th.T.Helper()
	deploy := filepath.Join(th.Root, "deploy")
	th.Apply(nil, "--server-side", "--force-conflicts", "-f", filepath.Join(deploy, "namespace.yaml"))
	th.Apply(nil, "--server-side", "--force-conflicts", "-k", deploy)
}

// ServiceAccount returns a kubeconfig file with a token of a ServiceAccount, which has the permissions that the manifests
// grant it and no others.
func (th *Theater) ServiceAccount(name string) string {
	th.T.Helper()
	token, err := th.Client.CoreV1().ServiceAccounts("outboard-system").CreateToken(th.Ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		th.T.Fatal(err)
	}
	admin := th.AdminConfig()
	file := filepath.Join(th.T.TempDir(), "kubeconfig")
	const entry = "cluster"
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: entry,
		Contexts:       map[string]*clientcmdapi.Context{entry: {Cluster: entry, AuthInfo: entry}},
		Clusters:       map[string]*clientcmdapi.Cluster{entry: {Server: admin.Host, CertificateAuthorityData: admin.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{entry: {Token: token.Status.Token}},
	}, file); err != nil {
		th.T.Fatal(err)
	}
	return file
}

// Apply runs kubectl apply as a user does.
func (th *Theater) Apply(stdin []byte, args ...string) {
	th.T.Helper()
	kubectl := th.Kubectl(th.Ctx, append([]string{"apply"}, args...)...)
	kubectl.Stdin = bytes.NewReader(stdin)
	if out, err := kubectl.CombinedOutput(); err != nil {
		th.T.Fatalf("kubectl apply %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Command runs outboard and returns what it prints.
func (th *Theater) Command(args ...string) string {
	th.T.Helper()
	cmd := exec.CommandContext(th.Ctx, th.Binary(), args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		th.T.Fatalf("outboard %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}
