package stage

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"outboard.dev/outboard/test/controlplane"
)

// Other is another cluster.
type Other struct {
	*controlplane.ControlPlane
	// Client is an administrator's.
	Client kubernetes.Interface
}

// StartOther starts another cluster with the same programs, which ends with the stage, and writes NAME.kubeconfig into the
// directory of Outboard's configuration, with the permissions of deploy/other-cluster.yaml.
func (s *Stage) StartOther(ctx context.Context, name string) (*Other, error) {
	var g *ground
	var err error
	if s.pool != nil {
		g, err = s.pool.take(ctx, s.Root)
	} else {
		g, err = startGround(ctx, s.Root, controlplane.Options{BinDir: s.binDir})
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.others = append(s.others, g)
	s.mu.Unlock()
	o := &Other{ControlPlane: g.ControlPlane, Client: g.Client}
	if out, err := o.Kubectl(ctx, "apply", "-f", filepath.Join(s.Root, "deploy", "other-cluster.yaml")).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("another cluster: %w: %s", err, out)
	}
	kubeconfig, err := o.reader(ctx)
	if err != nil {
		return nil, fmt.Errorf("another cluster: %w", err)
	}
	return o, s.WriteFile(name+".kubeconfig", kubeconfig)
}

// reader returns a kubeconfig file for the identity that the manifest defines.
func (o *Other) reader(ctx context.Context) ([]byte, error) {
	const name = "outboard-reader"
	token, err := o.Client.CoreV1().ServiceAccounts("outboard-system").CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	server := o.AdminConfig()
	return clientcmd.Write(clientcmdapi.Config{
		CurrentContext: name,
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: server.Host, CertificateAuthorityData: server.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token.Status.Token}},
	})
}

// Create creates objects, written as YAML. Pods may already have nodes.
func (o *Other) Create(ctx context.Context, objects io.Reader) error {
	kubectl := o.Kubectl(ctx, "create", "-f", "-")
	kubectl.Stdin = objects
	if out, err := kubectl.CombinedOutput(); err != nil {
		return fmt.Errorf("another cluster: %w: %s", err, out)
	}
	return nil
}

// playOthers starts the example's other clusters.
func (s *Stage) playOthers(ctx context.Context, e *Example) error {
	for name, objects := range e.Others {
		o, err := s.StartOther(ctx, name)
		if err != nil {
			return err
		}
		if err := o.Create(ctx, bytes.NewReader(objects)); err != nil {
			return err
		}
	}
	return nil
}
