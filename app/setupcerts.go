package app

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
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

// longestLifetime is the limit of --lifetime: a new CA is valid for ten years.
const longestLifetime = 10 * 365 * 24 * time.Hour

type certsOptions struct {
	names            []string
	client           string
	dir              string
	namespace        string
	lifetime         time.Duration
	secrets          bool
	renew            bool
	newKeys          bool
	addCA            bool
	removeOldCAs     bool
	changedNames     bool // --server-name is set
	changedNamespace bool // --outboard-namespace is set
	changedClient    bool // --client-name is set
}

func setupCertsCommand() *cobra.Command {
	o := certsOptions{}
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "certs --dir DIRECTORY",
		Short: "Create and renew certificates for mutual TLS between kube-scheduler and Outboard",
		Long: `Create a certificate authority (CA), a server certificate for Outboard and a client
certificate for kube-scheduler in a directory: ca.crt, ca.key, server.crt, server.key,
client.crt and client.key. What exists is kept, in particular the CA: you can run the
command again. Keep ca.key secret, and back it up: certificates of another CA are not
trusted until you have replaced ca.crt everywhere.

--renew issues both certificates again, with the same names unless you specify others:
--server-name replaces all names of the server, and the command lists those that are gone. It
keeps their keys, so that a program that reads the two files one after the other never finds
a certificate without its key. --new-keys replaces the keys, too: a connection that
kube-scheduler opens in that moment may fail.
--add-ca, --renew and --remove-old-cas, in this order, replace the CA without a refused call.
After each of the three, distribute the files, and wait until Outboard has them. After --add-ca
and after --renew, also restart kube-scheduler, which reads ca.crt only when it starts.`,
		Example: `  outboard setup certs --dir tls
  outboard setup certs --dir tls --secrets | kubectl apply -f -
  outboard setup certs --dir tls --renew`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.check(); err != nil {
				return err
			}
			if o.dir == "" {
				return missing(cmd, "dir")
			}
			changed := cmd.Flags().Changed
			o.changedNames, o.changedNamespace, o.changedClient = changed("server-name"), changed("outboard-namespace"), changed("client-name")
			if !o.changedNames {
				o.names = wiring.ServerNames(o.namespace)
			}
			set, report, err := o.run()
			if err != nil {
				return err
			}
			if !o.secrets {
				return output.write(cmd.OutOrStdout(), inJSON(report), report.text)
			}
			if err := output.write(cmd.ErrOrStderr(), inJSON(report), report.text); err != nil {
				return err
			}
			return o.writeSecrets(cmd.OutOrStdout(), set)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.dir, "dir", "", "directory of the files (required)")
	flags.StringSliceVar(&o.names, "server-name", nil, "DNS names and IP addresses at which kube-scheduler calls Outboard (default: outboard.NAMESPACE.svc and loopback)")
	flags.StringVar(&o.client, "client-name", config.SchedulerClient, "name of kube-scheduler in its certificate, for allowedClients")
	outboardNamespaceFlag(cmd, &o.namespace, wiring.Namespace, ", of its Service and of the Secrets")
	flags.DurationVar(&o.lifetime, "lifetime", 365*24*time.Hour, "how long new certificates are valid, but not longer than their CA; a new CA is valid for ten years")
	flags.BoolVar(&o.secrets, "secrets", false, "print the certificates as Secrets, without the key of the CA")
	flags.BoolVar(&o.renew, "renew", false, "issue the server and the client certificate again")
	flags.BoolVar(&o.newKeys, "new-keys", false, "with --renew: replace the keys, too")
	flags.BoolVar(&o.addCA, "add-ca", false, "create a new CA, which signs from now on; ca.crt keeps the former one")
	flags.BoolVar(&o.removeOldCAs, "remove-old-cas", false, "remove the former CA from ca.crt")
	output.register(cmd)
	return cmd
}

// run changes the files according to the flags, and reports its changes and when each certificate
// expires.
func (o certsOptions) run() (*certs.Set, *certsReport, error) {
	if o.lifetime < time.Hour || o.lifetime > longestLifetime {
		return nil, nil, fmt.Errorf("--lifetime=%s: must be between 1h and %.0fh, for which a new CA is valid", o.lifetime, longestLifetime.Hours())
	}
	if o.renew && o.addCA || o.renew && o.removeOldCAs || o.addCA && o.removeOldCAs {
		return nil, nil, errors.New("--add-ca, --renew and --remove-old-cas are three steps, with others in between: use one of them, as outboard setup certs --help describes")
	}
	if o.client == "" {
		return nil, nil, errors.New("--client-name must not be empty: serving.tls.allowedClients of Outboard lists it")
	}
	if o.newKeys && !o.renew {
		return nil, nil, errors.New("--new-keys needs --renew")
	}
	if wrong := validation.IsDNS1123Label(o.namespace); len(wrong) > 0 {
		return nil, nil, fmt.Errorf("--outboard-namespace=%q: %s", o.namespace, wrong[0])
	}
	set, err := certs.ReadSet(o.dir)
	if err != nil {
		return nil, nil, err
	}
	changed := o.renew
	if set.Authority == nil && (o.renew || o.addCA || o.removeOldCAs) {
		return nil, nil, fmt.Errorf("%s has no certificates yet", o.dir)
	}
	if set.Authority == nil || o.addCA {
		changed = true
		if err := addCA(set); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", o.file("ca.crt"), err)
		}
	}
	if o.removeOldCAs {
		changed = changed || set.Rotating()
		if err := set.RemoveOldAuthorities(); err != nil {
			return nil, nil, fmt.Errorf("%w: renew the certificates with --renew first", err)
		}
	}
	former := set.Server.Cert
	server, err := o.server(set)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", o.file("server.crt"), err)
	}
	client, err := o.clientCert(set)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", o.file("client.crt"), err)
	}
	changed = changed || server || client
	if changed {
		if err := set.WriteFiles(o.dir); err != nil {
			return nil, nil, err
		}
	}
	report, err := o.report(set, parsed(former))
	return set, report, err
}

func (o certsOptions) file(name string) string { return filepath.Join(o.dir, name) }

func addCA(set *certs.Set) error {
	// The name differs from that of the former CA, so that messages about certificates identify the
	// CA.
	now := strings.Replace(time.Now().UTC().Format("20060102150405.000000000"), ".", "-", 1)
	authority, err := certs.NewAuthority(certs.AuthorityOptions{CommonName: "outboard-ca-" + now})
	if err != nil {
		return err
	}
	return set.AddAuthority(authority)
}

// server issues the server's certificate if there is none, or if it is to be renewed.
func (o certsOptions) server(set *certs.Set) (issued bool, err error) {
	former := parsed(set.Server.Cert)
	if set.Server.Cert != nil && !o.renew {
		leaf, err := set.Check(set.Server, x509.ExtKeyUsageServerAuth)
		if err != nil {
			return false, fmt.Errorf("%w: replace it with --renew", err)
		}
		var wanted []string
		if o.changedNames {
			wanted = o.names
		} else if o.moved(leaf) != "" {
			wanted = []string{wiring.ServiceName(o.namespace)}
		}
		hosts := certs.Hosts(leaf)
		if others := namesBeyond(leaf, wanted); len(others) > 0 {
			remedy := "replace it with --renew"
			if o.changedNames { // which replaces all names
				remedy = fmt.Sprintf("to add to its names, run outboard setup certs --dir %s --renew --server-name %s", o.dir, strings.Join(append(hosts, others...), ","))
			}
			return false, fmt.Errorf("the certificate is for %s, not for %s: %s", strings.Join(hosts, ", "), strings.Join(others, ", "), remedy)
		}
		return false, nil
	}
	names := o.names
	if former != nil && !o.changedNames {
		names = certs.Hosts(former)
		if i := slices.Index(names, o.moved(former)); i >= 0 {
			names[i] = wiring.ServiceName(o.namespace)
		}
	}
	set.Server, err = set.Authority.Issue(certs.Request{CommonName: "outboard", Hosts: names, Server: true, NotAfter: o.until(set), Former: o.former(set.Server)})
	return true, err
}

// moved returns the name of the Service in another namespace than --outboard-namespace if the
// certificate has it instead; "" otherwise.
func (o certsOptions) moved(cert *x509.Certificate) string {
	if !o.changedNamespace || o.changedNames || cert.VerifyHostname(wiring.ServiceName(o.namespace)) == nil {
		return ""
	}
	for _, name := range cert.DNSNames {
		if labels := strings.Split(name, "."); len(labels) == 3 && name == wiring.ServiceName(labels[1]) {
			return name
		}
	}
	return ""
}

// clientCert issues the client's certificate if there is none, or if it is to be renewed.
func (o certsOptions) clientCert(set *certs.Set) (issued bool, err error) {
	former := parsed(set.Client.Cert)
	if set.Client.Cert != nil && !o.renew {
		leaf, err := set.Check(set.Client, x509.ExtKeyUsageClientAuth)
		if err == nil && o.changedClient && leaf.Subject.CommonName != o.client {
			err = fmt.Errorf("the certificate is for %q, not for %q", leaf.Subject.CommonName, o.client)
		}
		if err != nil {
			return false, fmt.Errorf("%w: replace it with --renew", err)
		}
		return false, nil
	}
	name := o.client
	if former != nil && !o.changedClient {
		name = cmp.Or(former.Subject.CommonName, name)
	}
	set.Client, err = set.Authority.Issue(certs.Request{CommonName: name, Client: true, NotAfter: o.until(set), Former: o.former(set.Client)})
	return true, err
}

// former returns the pair whose key the new certificate is for.
func (o certsOptions) former(p certs.Pair) certs.Pair {
	if o.newKeys {
		return certs.Pair{}
	}
	return p
}

// until returns when new certificates expire: never after their CA.
func (o certsOptions) until(set *certs.Set) time.Time {
	until := time.Now().Add(o.lifetime)
	if ca := parsed(set.CAs).NotAfter; ca.Before(until) {
		return ca
	}
	return until
}

// parsed returns the first certificate of a file, or nil.
func parsed(file []byte) *x509.Certificate {
	if all, _ := certs.Parse(file); len(all) > 0 {
		return all[0]
	}
	return nil
}

// namesBeyond returns those of the names for which the certificate is not.
func namesBeyond(cert *x509.Certificate, names []string) []string {
	var beyond []string
	for _, name := range names {
		if !slices.Contains(certs.Hosts(cert), name) && cert.VerifyHostname(name) != nil {
			beyond = append(beyond, name)
		}
	}
	return beyond
}

// certsReport has the certificates of a directory, and what new ones can break.
type certsReport struct {
	Certificates []reportedCert `json:"certificates"`
	Notes        []string       `json:"notes,omitempty"`
}

type reportedCert struct {
	File        string    `json:"file"`
	NotAfter    time.Time `json:"notAfter"`
	Names       []string  `json:"names"`
	ExpiresSoon bool      `json:"expiresSoon,omitempty"`
}

// report describes the certificates. former is the server's certificate before, or nil.
func (o certsOptions) report(set *certs.Set, former *x509.Certificate) (*certsReport, error) {
	server, client := parsed(set.Server.Cert), parsed(set.Client.Cert)
	r := &certsReport{}
	add := func(file string, cert *x509.Certificate, names ...string) {
		r.Certificates = append(r.Certificates, reportedCert{o.file(file), cert.NotAfter.UTC(), names, time.Until(cert.NotAfter) < renewalNotice})
	}
	cas, err := certs.Parse(set.CAs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.file("ca.crt"), err)
	}
	for _, ca := range cas {
		add("ca.crt", ca, ca.Subject.CommonName)
	}
	add("server.crt", server, certs.Hosts(server)...)
	add("client.crt", client, client.Subject.CommonName)
	var dropped []string
	if former != nil {
		dropped = namesBeyond(server, certs.Hosts(former))
	}
	if len(dropped) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("server.crt is no longer for %s: each kube-scheduler that calls Outboard by such a name refuses it. To keep them, run the command again with --server-name %s.",
			strings.Join(dropped, ", "), strings.Join(append(dropped, certs.Hosts(server)...), ",")))
	}
	if o.renew && set.Rotating() {
		r.Notes = append(r.Notes, "kube-scheduler reads ca.crt only when it starts. If you have not restarted kube-scheduler since --add-ca, restart it before "+
			"you distribute these certificates: otherwise all calls fail as soon as the open connections end.")
	}
	return r, nil
}

// text writes a line for each certificate and note.
func (r *certsReport) text(w io.Writer) error {
	var b strings.Builder
	for _, c := range r.Certificates {
		fmt.Fprintf(&b, "%-22s valid until %s  %s", c.File, c.NotAfter.Format(time.RFC3339), strings.Join(c.Names, ", "))
		if c.ExpiresSoon {
			b.WriteString("  (expires soon)")
		}
		b.WriteString("\n")
	}
	for _, note := range r.Notes {
		fmt.Fprintln(&b, note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeSecrets prints one Secret for each side.
func (o certsOptions) writeSecrets(w io.Writer, set *certs.Set) error {
	var errs []error
	for _, s := range []struct {
		name string
		pair certs.Pair
	}{{"outboard-server", set.Server}, {"outboard-client", set.Client}} {
		text, err := yaml.Marshal(o.secret(s.name, set.CAs, s.pair))
		if err == nil {
			_, err = fmt.Fprintf(w, "---\n%s", text)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// secret has a pair and the certificates of the CAs, with which its owner verifies the other side.
func (o certsOptions) secret(name string, cas []byte, pair certs.Pair) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{"ca.crt": cas, corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key},
	}
}
