package app

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/certs"
)

type certificatesOptions struct {
	names     []string
	client    string
	dir       string
	namespace string
}

func certificatesCommand() *cobra.Command {
	o := certificatesOptions{}
	cmd := &cobra.Command{
		Use:   "certificates",
		Short: "Create certificates for mutual TLS between kube-scheduler and Outboard",
		Long: `Create a certificate authority, a server certificate for Outboard and a client
certificate for kube-scheduler. Print them as two Secrets, for kubectl apply, or
write them as files with --dir. Only --dir keeps the key of the authority: without
it, new certificates need a new authority on both sides.`,
		Example: `  outboard certificates --server-name outboard.outboard-system.svc | kubectl apply -f -
  outboard certificates --server-name 127.0.0.1 --dir ./tls`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			authority, server, client, err := o.issue()
			if err != nil {
				return err
			}
			if o.dir != "" {
				return o.write(authority, server, client)
			}
			for _, secret := range []*corev1.Secret{o.secret("outboard-server", authority, server), o.secret("outboard-client", authority, client)} {
				text, err := yaml.Marshal(secret)
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "---\n%s", text); err != nil {
					return err
				}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.names, "server-name", nil, "DNS names and IP addresses at which kube-scheduler calls Outboard (required)")
	flags.StringVar(&o.client, "client-name", "outboard-scheduler", "name of kube-scheduler, for allowedClients")
	flags.StringVar(&o.namespace, "namespace", "outboard-system", "namespace of the Secrets")
	flags.StringVar(&o.dir, "dir", "", "write files to this directory instead of printing Secrets")
	if err := cmd.MarkFlagRequired("server-name"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func (o certificatesOptions) issue() (authority, server, client certs.Pair, err error) {
	ca, err := certs.NewAuthority(certs.AuthorityOptions{})
	if err != nil {
		return authority, server, client, err
	}
	server, err = ca.Issue(certs.Request{CommonName: "outboard", Hosts: o.names, Server: true})
	if err != nil {
		return authority, server, client, err
	}
	client, err = ca.Issue(certs.Request{CommonName: o.client, Client: true})
	return ca.Pair(), server, client, err
}

// secret holds the pair beside the authority's certificate, by which its holder
// knows the other side.
func (o certificatesOptions) secret(name string, authority, pair certs.Pair) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{"ca.crt": authority.Cert, corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key},
	}
}

func (o certificatesOptions) write(authority, server, client certs.Pair) error {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return fmt.Errorf("making the directory: %w", err)
	}
	for name, pair := range map[string]certs.Pair{"ca": authority, "server": server, "client": client} {
		path := filepath.Join(o.dir, name)
		if err := pair.WriteFiles(path+".crt", path+".key"); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}
