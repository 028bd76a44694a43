package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/wiring"
)

// renewalNotice is how long before a certificate expires the command reports that.
const renewalNotice = 30 * 24 * time.Hour

type certsOptions struct {
	dir, namespace            string
	names                     []string
	secrets, inCluster, renew bool
	cluster                   clusterFlags
}

func setupCertsCommand() *cobra.Command {
	o := certsOptions{}
	cmd := &cobra.Command{
		Use:   "certs --dir DIRECTORY | --cluster",
		Short: "Create and renew certificates for mutual TLS between kube-scheduler and Outboard",
		Long: `Create a certificate authority (CA), which is valid for ten years, and for one year a server
certificate for Outboard and a client certificate for kube-scheduler, in a directory: ca.crt,
ca.key, server.crt, server.key, client.crt and client.key. What exists is kept: you can run the
command again. Keep ca.key secret, and back it up: certificates of another CA are not trusted
until you have replaced ca.crt everywhere.

With --cluster, they are in the Secrets outboard-ca, outboard-server and outboard-client, which the
installation creates, and certificates that end within 30 days are renewed. The installation runs
this each day. It leaves alone what it has not created.

--renew issues both certificates again, with the same keys and names.`,
		Example: `  outboard setup certs --dir tls
  outboard setup certs --dir tls --secrets | kubectl apply -f -
  outboard setup certs --dir tls --renew
  outboard setup certs --cluster`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.inCluster {
				return o.runInCluster(cmd.Context(), cmd.OutOrStdout())
			}
			if o.dir == "" {
				return missing(cmd, "dir")
			}
			set, err := o.run(cmd.Flags().Changed("outboard-namespace"))
			if err != nil {
				return err
			}
			if !o.secrets {
				return o.report(cmd.OutOrStdout(), set)
			}
			if err := o.report(cmd.ErrOrStderr(), set); err != nil {
				return err
			}
			return o.writeSecrets(cmd.OutOrStdout(), set)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.dir, "dir", "", "directory of the files (required)")
	flags.StringSliceVar(&o.names, "server-name", nil, "further names and IP addresses at which kube-scheduler calls Outboard, beside outboard.NAMESPACE.svc and loopback")
	outboardNamespaceFlag(cmd, &o.namespace)
	flags.BoolVar(&o.inCluster, "cluster", false, "keep the certificates in Secrets of the namespace of Outboard, not in a directory")
	o.cluster.register(cmd)
	flags.BoolVar(&o.secrets, "secrets", false, "print the certificates as Secrets, without the key of the CA")
	flags.BoolVar(&o.renew, "renew", false, "issue the server and the client certificate again")
	cmd.MarkFlagsMutuallyExclusive("cluster", "dir")
	cmd.MarkFlagsMutuallyExclusive("cluster", "secrets")
	return cmd
}

// run changes the files according to the flags. named is true if --outboard-namespace is set.
func (o *certsOptions) run(named bool) (*certs.Set, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	set, err := certs.ReadSet(o.dir)
	if err != nil {
		return nil, err
	}
	if err = o.change(set, named); err == nil {
		err = set.WriteFiles(o.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.dir, err)
	}
	return set, nil
}

func (o *certsOptions) validate() error {
	if wrong := validation.IsDNS1123Label(o.namespace); len(wrong) > 0 {
		return fmt.Errorf("--outboard-namespace=%q: %s", o.namespace, wrong[0])
	}
	return nil
}

// change does to the set what the flags say. named is true if the server is called in the namespace
// of Outboard, also if its certificate exists.
func (o *certsOptions) change(set *certs.Set, named bool) (err error) {
	names, created := o.names, set.Authority == nil
	if created || named {
		names = append(wiring.ServerNames(o.namespace), names...)
	}
	if created && o.renew {
		return errors.New("there are no certificates yet")
	}
	if created {
		if set.Authority, err = certs.NewAuthority(certs.AuthorityOptions{}); err != nil {
			return err
		}
	}
	return set.Issue(names, config.SchedulerClient, o.renew)
}

// report writes a line for each certificate.
func (o *certsOptions) report(w io.Writer, set *certs.Set) error {
	var b strings.Builder
	for _, file := range []struct {
		name string
		data []byte
	}{{"ca.crt", set.Authority.Pair().Cert}, {"server.crt", set.Server.Cert}, {"client.crt", set.Client.Cert}} {
		all, err := certs.Parse(file.data)
		if err != nil {
			return fmt.Errorf("%s: %w", file.name, err)
		}
		for _, cert := range all {
			names := certs.Hosts(cert)
			if len(names) == 0 {
				names = []string{cert.Subject.CommonName}
			}
			fmt.Fprintf(&b, "%-10s valid until %s  %s", file.name, cert.NotAfter.UTC().Format(time.RFC3339), strings.Join(names, ", "))
			if time.Until(cert.NotAfter) < renewalNotice {
				b.WriteString("  (expires soon)")
			}
			b.WriteString("\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// secrets are the Secrets of the certificates: of the CA with its key, of Outboard and of
// kube-scheduler.
var secrets = []string{"outboard-ca", "outboard-server", "outboard-client"}

// dataOf returns what the Secrets contain. Each has the certificate of the CA, with which its owner
// verifies the other side.
func dataOf(set *certs.Set) (all []map[string][]byte) {
	for _, p := range []certs.Pair{set.Authority.Pair(), set.Server, set.Client} {
		all = append(all, map[string][]byte{"ca.crt": set.Authority.Pair().Cert, corev1.TLSCertKey: p.Cert, corev1.TLSPrivateKeyKey: p.Key})
	}
	return all
}

// writeSecrets prints the Secrets of both sides.
func (o *certsOptions) writeSecrets(w io.Writer, set *certs.Set) error {
	for i, data := range dataOf(set)[1:] {
		text, err := yaml.Marshal(&corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: secrets[i+1]},
			Data:       data,
		})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}

// runInCluster changes the Secrets according to the flags, and renews certificates that end soon.
// If another process changes them meanwhile, it fails.
func (o *certsOptions) runInCluster(ctx context.Context, w io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	api, err := readingClient(o.cluster.ClientConnection)
	if err != nil {
		return err
	}
	client := api.CoreV1().Secrets(o.namespace)
	var all []*corev1.Secret
	var pairs []certs.Pair
	for _, name := range secrets {
		secret, err := client.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%w in the namespace %s: install Outboard first, with certificates.source=Job", err, o.namespace)
		}
		if err != nil {
			return err
		}
		all = append(all, secret)
		pairs = append(pairs, certs.Pair{Cert: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]})
	}
	if pairs[0].Cert == nil && pairs[1].Cert != nil && pairs[2].Cert != nil {
		_, err := fmt.Fprintf(w, "%s is empty, and there are certificates: they are not of this command, which leaves them alone\n", secrets[0])
		return err
	}
	set, err := certs.NewSet(pairs[0], pairs[1], pairs[2])
	if err != nil {
		return fmt.Errorf("the Secrets of the namespace %s: %w", o.namespace, err)
	}
	if set.EndsBefore(time.Now().Add(renewalNotice)) {
		o.renew = true
	}
	if err := o.change(set, true); err != nil {
		return fmt.Errorf("the Secrets of the namespace %s: %w", o.namespace, err)
	}
	for i, data := range dataOf(set) { // the CA first: the certificates are of one that is stored
		if maps.EqualFunc(data, all[i].Data, bytes.Equal) {
			continue
		}
		all[i].Data = data
		if _, err := client.Update(ctx, all[i], metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return o.report(w, set)
}
