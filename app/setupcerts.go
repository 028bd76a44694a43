package app

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
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
	dir, namespace                      string
	names                               []string
	secrets, renew, addCA, removeOldCAs bool
}

func setupCertsCommand() *cobra.Command {
	o := certsOptions{}
	cmd := &cobra.Command{
		Use:   "certs --dir DIRECTORY",
		Short: "Create and renew certificates for mutual TLS between kube-scheduler and Outboard",
		Long: `Create a certificate authority (CA), which is valid for ten years, and for one year a server
certificate for Outboard and a client certificate for kube-scheduler, in a directory: ca.crt,
ca.key, server.crt, server.key, client.crt and client.key. What exists is kept: you can run the
command again. Keep ca.key secret, and back it up: certificates of another CA are not trusted
until you have replaced ca.crt everywhere.

--renew issues both certificates again, with the same keys and names.

--add-ca, --renew and --remove-old-cas, in this order, replace the CA without a refused call.
After each of the three, distribute the files, and wait until Outboard has them. After --add-ca
and after --renew, also restart kube-scheduler, which reads ca.crt only when it starts.`,
		Example: `  outboard setup certs --dir tls
  outboard setup certs --dir tls --secrets | kubectl apply -f -
  outboard setup certs --dir tls --renew`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
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
	flags.BoolVar(&o.secrets, "secrets", false, "print the certificates as Secrets, without the key of the CA")
	flags.BoolVar(&o.renew, "renew", false, "issue the server and the client certificate again")
	flags.BoolVar(&o.addCA, "add-ca", false, "create a new CA, which signs from now on; ca.crt keeps the former one")
	flags.BoolVar(&o.removeOldCAs, "remove-old-cas", false, "remove the former CA from ca.crt")
	return cmd
}

// run changes the files according to the flags. named is true if --outboard-namespace is set.
func (o *certsOptions) run(named bool) (*certs.Set, error) {
	if o.renew && o.addCA || o.renew && o.removeOldCAs || o.addCA && o.removeOldCAs {
		return nil, errors.New("--add-ca, --renew and --remove-old-cas are three steps, with others in between: use one of them, as outboard setup certs --help describes")
	}
	if wrong := validation.IsDNS1123Label(o.namespace); len(wrong) > 0 {
		return nil, fmt.Errorf("--outboard-namespace=%q: %s", o.namespace, wrong[0])
	}
	set, err := certs.ReadSet(o.dir)
	if err != nil {
		return nil, err
	}
	names, created := o.names, set.Authority == nil
	if created || named {
		names = append(wiring.ServerNames(o.namespace), names...)
	}
	switch {
	case created && (o.renew || o.addCA || o.removeOldCAs):
		err = errors.New("there are no certificates yet")
	case created || o.addCA:
		err = set.AddAuthority()
	case o.removeOldCAs:
		err = set.RemoveOldAuthorities()
	}
	if err == nil {
		err = set.Issue(names, config.SchedulerClient, o.renew)
	}
	if err == nil {
		err = set.WriteFiles(o.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.dir, err)
	}
	return set, nil
}

// report writes a line for each certificate.
func (o *certsOptions) report(w io.Writer, set *certs.Set) error {
	var b strings.Builder
	for _, file := range []struct {
		name string
		data []byte
	}{{"ca.crt", set.CAs}, {"server.crt", set.Server.Cert}, {"client.crt", set.Client.Cert}} {
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
	if o.renew && set.Rotating() {
		b.WriteString("kube-scheduler reads ca.crt only when it starts. If you have not restarted kube-scheduler since --add-ca, restart it before " +
			"you distribute these certificates: otherwise all calls fail as soon as the open connections end.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeSecrets prints one Secret for each side, with the certificates of the CAs, with which its
// owner verifies the other side.
func (o *certsOptions) writeSecrets(w io.Writer, set *certs.Set) error {
	for _, side := range []struct {
		name string
		pair certs.Pair
	}{{"outboard-server", set.Server}, {"outboard-client", set.Client}} {
		text, err := yaml.Marshal(&corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: side.name},
			Type:       corev1.SecretTypeTLS,
			Data:       map[string][]byte{"ca.crt": set.CAs, corev1.TLSCertKey: side.pair.Cert, corev1.TLSPrivateKeyKey: side.pair.Key},
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
