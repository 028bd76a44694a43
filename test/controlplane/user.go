package controlplane

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"outboard.dev/outboard/internal/certs"
)

// User is an identity that the API server accepts. What it may do is up to the
// RBAC bindings of its name and groups.
type User struct {
	// Name and Groups are what the API server takes it for.
	Name   string
	Groups []string

	// Config is a client configuration, with the rate limits that client-go has
	// by default. The owner of the User may change it.
	Config *rest.Config

	// Kubeconfig is the absolute name of a kubeconfig file with the same content.
	// It needs no other file.
	Kubeconfig string
}

// AddUser issues a client certificate for a user of that name and those groups.
// Adding a name again returns another certificate for the same identity.
func (cp *ControlPlane) AddUser(name string, groups ...string) (*User, error) {
	pair, err := cp.ca.Issue(certs.Request{CommonName: name, Organizations: groups, Client: true})
	if err != nil {
		return nil, fmt.Errorf("user %q: %w", name, err)
	}
	cp.mu.Lock()
	cp.users++
	file := cp.path(fmt.Sprintf("user-%d.kubeconfig", cp.users))
	cp.mu.Unlock()

	user := &User{
		Name:   name,
		Groups: groups,
		Config: &rest.Config{
			Host: cp.apiPort.url(),
			TLSClientConfig: rest.TLSClientConfig{
				CAData:   cp.ca.Pair().Cert,
				CertData: pair.Cert,
				KeyData:  pair.Key,
			},
		},
		Kubeconfig: file,
	}
	const entry = "outboard"
	kubeconfig := clientcmdapi.Config{
		CurrentContext: entry,
		Contexts:       map[string]*clientcmdapi.Context{entry: {Cluster: entry, AuthInfo: entry}},
		Clusters: map[string]*clientcmdapi.Cluster{entry: {
			Server:                   user.Config.Host,
			CertificateAuthorityData: user.Config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{entry: {
			ClientCertificateData: user.Config.CertData,
			ClientKeyData:         user.Config.KeyData,
		}},
	}
	if err := clientcmd.WriteToFile(kubeconfig, file); err != nil {
		return nil, fmt.Errorf("user %q: %w", name, err)
	}
	return user, nil
}
