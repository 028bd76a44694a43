package doctor

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/wiring"
)

// How long before its expiry the certificate of a CA, or another one, is reported.
const (
	expiring = 90 * 24 * time.Hour
	ending   = 14 * 24 * time.Hour
)

func (e *extenderAt) tls() {
	t := e.extender.TLSConfig
	if t == nil {
		t = &tlsConfig{}
	}
	e.files(t)
	if e.unknownValue(e.field("urlPrefix")) || !e.scheme() {
		return
	}
	e.verification(t)
	if t.CAFile != "" || t.CAData != "" {
		e.authorities(t)
		e.server(t)
	}
	e.client(t)
}

// scheme checks http:// and https://. It returns false if nothing else about TLS is worth a
// finding.
func (e *extenderAt) scheme() bool {
	x := e.extender
	u := e.url()
	served := e.outboard && e.Config.Serving.TLS != nil
	corrected := "https://" + strings.TrimPrefix(x.URLPrefix, "http://")
	switch plain := u.Scheme == "http"; {
	case plain && (served || x.EnableHTTPS && !e.outboard):
		message, why := "urlPrefix begins with http://, and Outboard serves TLS", "every call fails with status 400"
		if x.EnableHTTPS {
			message, why = "enableHTTPS is true, and urlPrefix begins with http://", "enableHTTPS does not change the scheme: the calls are plain text"
		}
		severity := Warning // another server may serve plain text
		if e.outboard {
			severity = Error
		}
		e.report(severity, "PlaintextPrefix", "urlPrefix", message, why, "write urlPrefix: "+corrected)
		x.URLPrefix = corrected // the other findings are about that
	case plain && e.outboard && hostOf(u.Hostname()) != "loopback":
		e.report(Error, "PlainHTTP", "urlPrefix", "urlPrefix begins with http://, and Outboard serves plain HTTP to its own machine only", "every call fails", "configure serving.tls in "+e.ConfigFile+", and write https://")
		x.URLPrefix = corrected
		return false
	case plain && hostOf(u.Hostname()) != "loopback":
		e.report(Warning, "PlainHTTP", "urlPrefix", "urlPrefix begins with http://", "anyone on the way can read the calls, and decide on which nodes pods run", "write https://, with enableHTTPS: true and tlsConfig.caFile"+x.TLSConfig.verified())
	case !plain && e.outboard && !served && e.chartServes():
		e.report(Warning, "TLSNotServed", "urlPrefix", "urlPrefix begins with https://, and "+e.ConfigFile+" has no serving.tls", "every call fails, unless the Helm chart installs the file: the chart sets serving.tls",
			"install the file with the chart, or configure serving.tls in it")
	case !plain && e.outboard && !served:
		e.report(Error, "TLSNotServed", "urlPrefix", "urlPrefix begins with https://, and Outboard serves plain HTTP", "every call fails", "configure serving.tls in "+e.ConfigFile+", or write http:// if Outboard runs on the same machine or in the same pod")
		return false
	}
	return true
}

// chartServes reports whether the call may arrive because the Helm chart installs Outboard's file,
// which serves its own host only: the chart sets serving.address and serving.tls. A file from the
// cluster is as the chart has written it.
func (e *extenderAt) chartServes() bool {
	port, _ := strconv.Atoi(portOf(e.url()))
	return !e.configDeployed && e.Config.Serving.TLS == nil && (hostOf(e.url().Hostname()) != "loopback" || onNodes(port))
}

// verification checks whether kube-scheduler verifies the server.
func (e *extenderAt) verification(t *tlsConfig) {
	x := e.extender
	https := strings.HasPrefix(x.URLPrefix, "https://")
	hasCA := t.CAFile != "" || t.CAData != ""
	fix := "tlsConfig.caFile: " + folder(t.CertFile) + "/ca.crt, and put the CA of Outboard's certificate there"
	if !e.outboard {
		fix = "tlsConfig.caFile to a file with the CA of the extender's certificate"
	}
	if https && !x.EnableHTTPS && !hasCA && !t.Insecure {
		severity, why := Warning, "kube-scheduler accepts certificates of the authorities in its image only: calls fail unless one of them signed that of the extender"
		if e.inside() {
			severity, why = Error, "kube-scheduler accepts certificates of the authorities in its image only, which sign none for this host: every call fails"
		}
		e.report(severity, "HTTPSNotEnabled", "enableHTTPS", "enableHTTPS is not true, and https:// needs it", why,
			"set enableHTTPS: true and "+fix)
	}
	if (x.EnableHTTPS || https && t.Insecure) && !hasCA {
		severity := Error
		if !e.outboard && hostOf(e.url().Hostname()) == "loopback" {
			severity = Warning
		}
		e.report(severity, "UnverifiedHTTPS", "tlsConfig", "there is no caFile or caData",
			"kube-scheduler then accepts any certificate, silently: anyone who can redirect the calls decides on which nodes pods run",
			"set "+fix+t.verified())
	}
}

// verified is what the correction of a missing CA needs in addition: kube-scheduler refuses a CA
// with insecure: true.
func (t *tlsConfig) verified() string {
	if t != nil && t.Insecure {
		return ", and remove tlsConfig.insecure"
	}
	return ""
}

// folder returns the folder of a file beside which others are to be; without a file, the one that
// setup scheduler writes.
func folder(file string) string {
	if path.IsAbs(file) {
		return path.Dir(file)
	}
	return wiring.Directory
}

// inside reports whether the host of urlPrefix has a name or an address inside the cluster, for
// which public authorities sign no certificates.
func (e *extenderAt) inside() bool {
	host := e.url().Hostname()
	ip := net.ParseIP(host)
	return hostOf(host) == "loopback" || ip != nil && ip.IsPrivate() || clusterName(host)
}

// clusterName reports whether only the cluster's DNS knows the host.
func clusterName(host string) bool {
	return strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".cluster.local")
}

// files checks the files and the data in tlsConfig.
func (e *extenderAt) files(t *tlsConfig) {
	var relative []string
	for _, part := range []struct{ name, file, data string }{{"ca", t.CAFile, t.CAData}, {"cert", t.CertFile, t.CertData}, {"key", t.KeyFile, t.KeyData}} {
		if part.file != "" && !filepath.IsAbs(part.file) {
			relative = append(relative, part.file)
		}
		if m := missing(part.file, e.ReadFile); m != nil && part.data == "" {
			e.refuse("FileNotMounted", e.field("tlsConfig."+part.name+"File"), part.file+" does not exist: "+m.Error(), "", "add the key, or name a file that the container has")
		} else if part.data == "" && e.notFound(part.file) {
			e.refuse("FileNotFound", e.field("tlsConfig."+part.name+"File"), part.file+" does not exist", "", "write the file, or correct the path")
		}
		e.encoding("tlsConfig."+part.name, part.data)
	}
	if len(relative) > 0 {
		e.report(Warning, "RelativePath", "tlsConfig", "relative paths: "+strings.Join(relative, ", "),
			"kube-scheduler looks for them in its working directory, not beside this file", "write absolute paths")
	}
	if t.Insecure && t.CAFile+t.CAData != "" {
		e.refuse("CAWithInsecure", e.field("tlsConfig.insecure"), "insecure is true, and there is a CA", "", "remove insecure")
	}
	if text := e.text(t.CAFile, t.CAData); text != nil && len(e.certificates(t.CAFile, t.CAData)) == 0 {
		e.refuse("InvalidValue", e.field(dataOrFile("tlsConfig.ca", t.CAData)), "there is no certificate in PEM", "", "put the certificate of the CA there")
	}
	certificate, key := t.CertFile+t.CertData != "", t.KeyFile+t.KeyData != ""
	pair := dataOrFile("tlsConfig.cert", t.CertData+t.KeyData) + " and " + dataOrFile("tlsConfig.key", t.CertData+t.KeyData)
	if certificate != key {
		e.report(Error, "ClientKey", "tlsConfig", "a certificate and its key go together, and one of them is missing", "kube-scheduler sends no certificate, and reports nothing", "set both "+pair)
		return
	}
	cert, private := e.text(t.CertFile, t.CertData), e.text(t.KeyFile, t.KeyData)
	if cert == nil || private == nil {
		e.exchanged(t, cert, private)
		return
	}
	if _, err := tls.X509KeyPair(cert, private); err != nil {
		at, message := dataOrFile("tlsConfig.cert", t.CertData), strings.TrimPrefix(err.Error(), "tls: ")
		fix := "write one pair in " + pair + ", such as client.crt and client.key of one folder of outboard setup certs"
		if t.CertData+t.KeyData != "" {
			e.refuse("ClientKey", e.field(at), message, "", fix)
			return
		}
		e.report(Error, "ClientKey", at, message, "every call fails, because kube-scheduler has no certificate that it can use", fix)
	}
}

// exchanged reports a key in the place of the certificate, or the reverse, if not both can be read
// here. If neither can, the names of the files say what they are.
func (e *extenderAt) exchanged(t *tlsConfig, cert, private []byte) {
	ends := func(file string, suffixes ...string) bool { return slices.Contains(suffixes, path.Ext(file)) }
	isKey := func(text []byte) bool { return bytes.Contains(text, []byte("PRIVATE KEY-----")) }
	isCertificate := func(text []byte) bool { return len(certificates(text)) > 0 }
	const why, fix = "kube-scheduler has no certificate that it can use: every call fails", "exchange the two"
	switch {
	case isKey(cert) && !isCertificate(cert):
		e.report(Error, "ClientKey", dataOrFile("tlsConfig.cert", t.CertData), "there is a private key, and no certificate", why, fix)
	case isCertificate(private) && !isKey(private):
		e.report(Error, "ClientKey", dataOrFile("tlsConfig.key", t.KeyData), "there is a certificate, and no private key", why, fix)
	case cert == nil && private == nil && ends(t.CertFile, ".key") && ends(t.KeyFile, ".crt", ".cert", ".pem"):
		e.report(Warning, "ClientKey", "tlsConfig.certFile", "certFile has the name of a private key, and keyFile that of a certificate", "if the names are right, "+why, fix)
	}
}

// dataOrFile returns the field with the data, or the one with the file.
func dataOrFile(name, data string) string {
	if data != "" {
		return name + "Data"
	}
	return name + "File"
}

// encoding checks data in base64.
func (e *extenderAt) encoding(name, data string) {
	if _, err := base64.StdEncoding.DecodeString(data); err == nil {
		return
	}
	at := e.field(name + "Data")
	defer func() { e.broken = append(e.broken, at) }()
	switch {
	case strings.HasPrefix(data, "-----BEGIN"):
		e.refuse("InvalidValue", at, "the data is not in base64", "", "write it in base64: base64 -w0 FILE")
	case filepath.IsAbs(data) && !strings.ContainsAny(data, "+= \n"):
		e.refuse("InvalidValue", at, "the data is not in base64, but the name of a file", "", "write "+lastOf(name)+"File: "+data)
	default:
		e.refuse("InvalidValue", at, "the data is not in base64", "", "write it in base64")
	}
}

// authorities checks the CA.
func (e *extenderAt) authorities(t *tlsConfig) {
	at := dataOrFile("tlsConfig.ca", t.CAData)
	if !slices.ContainsFunc(e.findings, func(f Finding) bool { return f.Code == "CANotReloaded" }) {
		e.report(Note, "CANotReloaded", at, "kube-scheduler reads the CA once", "when the CA changes, calls fail until kube-scheduler is restarted: restart it with both CAs before Outboard's certificate changes", "")
	}
	for _, cert := range e.certificates(t.CAFile, t.CAData) {
		if cert.NotAfter.Sub(e.Now) < expiring {
			fix := "make another CA, as with outboard setup certs --dir DIR --add-ca, and restart kube-scheduler with both before that day"
			if e.expired(cert) {
				fix = "make another CA with certificates, as with outboard setup certs and another directory, and restart kube-scheduler"
			}
			e.report(Warning, "CAExpires", at, fmt.Sprintf("the CA %q %s", cert.Subject.CommonName, e.ends(cert)), "every call fails from then on", fix)
		}
	}
}

// server checks the certificate of Outboard, if the extender calls Outboard and its file can be
// read here.
func (e *extenderAt) server(t *tlsConfig) {
	if !e.outboard || e.Config.Serving.TLS == nil {
		return
	}
	chain := certificates(e.readOrOmit(e.Config.Serving.TLS.CertFile, e.ReadConfigFile))
	if len(chain) == 0 {
		return
	}
	name, cert := cmp.Or(t.ServerName, e.url().Hostname()), chain[0]
	if err := cert.VerifyHostname(name); err != nil {
		e.report(Error, "ServerName", "tlsConfig.serverName", fmt.Sprintf("the certificate of Outboard is for %s, and not for %s", strings.Join(certs.Hosts(cert), ", "), name),
			"every call fails, because kube-scheduler does not accept the certificate", "set tlsConfig.serverName to a name in the certificate, or make a certificate with the name, as with outboard setup certs --dir DIR --renew --server-name and all names")
	}
	if e.unknownTo(e.certificates(t.CAFile, t.CAData), chain) {
		e.report(Error, "UnknownAuthority", "tlsConfig", "the CA did not sign the certificate of Outboard", "every call fails, because kube-scheduler does not accept the certificate", "use the CA that signed it")
	}
	if severity, soon := e.ending(cert); soon {
		e.elsewhere(severity, "CertificateExpires", e.Config.Serving.TLS.CertFile, "", "the certificate of Outboard "+e.ends(cert),
			"every call fails from then on", e.renewal(e.certificates(t.CAFile, t.CAData))+"; Outboard uses the new one for the next connection")
	}
}

// unknownTo reports whether there are CAs, and none of them signed the first certificate of the
// chain.
func (c *checker) unknownTo(cas, chain []*x509.Certificate) bool {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, ca := range cas {
		roots.AddCert(ca)
	}
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, CurrentTime: c.Now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	unknown := x509.UnknownAuthorityError{}
	return len(cas) > 0 && errors.As(err, &unknown)
}

// client compares the certificate of kube-scheduler with Outboard's configuration.
func (e *extenderAt) client(t *tlsConfig) {
	if !e.outboard || e.Config.Serving.TLS == nil || e.Config.Serving.TLS.ClientCAFile == "" {
		return
	}
	if t.CertFile == "" && t.CertData == "" {
		names := wiring.CertificateNames(clusterName(e.url().Hostname())) // a kube-scheduler that finds a Service by its name runs in a pod
		e.report(Error, "NoClientCertificate", "tlsConfig", "there is no certFile or certData",
			"Outboard refuses callers without a certificate, because its configuration has clientCAFile", fmt.Sprintf("set tlsConfig.certFile: %s/%s and tlsConfig.keyFile: %[1]s/%[3]s", folder(t.CAFile), names.Cert, names.Key))
		return
	}
	chain := e.certificates(t.CertFile, t.CertData)
	if len(chain) == 0 {
		return
	}
	cert, allowed := chain[0], e.Config.Serving.TLS.AllowedClients
	names := append([]string{cert.Subject.CommonName}, cert.DNSNames...)
	for _, u := range cert.URIs {
		names = append(names, u.String())
	}
	if len(allowed) > 0 && !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(allowed, name) }) {
		e.report(Error, "ClientNotAllowed", "tlsConfig.certFile", fmt.Sprintf("the certificate is for %q, and allowedClients has %s", names[0], strings.Join(allowed, ", ")),
			"Outboard refuses every call with an Error", "add the name to serving.tls.allowedClients of Outboard, or make a certificate with an allowed name")
	}
	cas := certificates(e.readOrOmit(e.Config.Serving.TLS.ClientCAFile, e.ReadConfigFile))
	if e.unknownTo(cas, chain) {
		e.report(Error, "UnknownAuthority", "tlsConfig.certFile", "no CA in serving.tls.clientCAFile of Outboard signed the certificate of kube-scheduler",
			"every call fails, because Outboard does not accept the certificate", "use a certificate that this CA signed")
	}
	if severity, soon := e.ending(cert); soon {
		e.report(severity, "CertificateExpires", "tlsConfig.certFile", "the certificate of kube-scheduler "+e.ends(cert),
			"Outboard refuses every call from then on", e.renewal(cas)+"; kube-scheduler reads the new one for every connection")
	}
}

// renewal is how to replace a certificate of one of the CAs, which must be valid to sign another.
func (e *extenderAt) renewal(cas []*x509.Certificate) string {
	if len(cas) > 0 && !slices.ContainsFunc(cas, func(ca *x509.Certificate) bool { return !e.expired(ca) }) {
		return "make it with another CA: this one has expired, too"
	}
	return "renew it, as with outboard setup certs --dir DIR --renew"
}

func (e *extenderAt) expired(cert *x509.Certificate) bool { return cert.NotAfter.Before(e.Now) }

// ending reports whether a certificate expires soon, or has expired, which is an error: then every
// call fails.
func (e *extenderAt) ending(cert *x509.Certificate) (severity Severity, soon bool) {
	if e.expired(cert) {
		return Error, true
	}
	return Warning, cert.NotAfter.Sub(e.Now) < ending
}

// ends returns the text of when a certificate expires.
func (e *extenderAt) ends(cert *x509.Certificate) string {
	verb := "ends"
	if e.expired(cert) {
		verb = "ended"
	}
	return verb + " on " + cert.NotAfter.UTC().Format(time.DateOnly)
}

// text returns data in base64, or the content of a file; nil if it cannot be read here.
func (e *extenderAt) text(file, data string) []byte {
	if data != "" {
		text, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return nil
		}
		return text
	}
	if file == "" || e.notFound(file) {
		return nil
	}
	return e.readOrOmit(file, e.ReadFile)
}

// certificates returns the certificates in data, in base64, or in a file; none if they cannot be
// read here.
func (e *extenderAt) certificates(file, data string) []*x509.Certificate {
	return certificates(e.text(file, data))
}

// certificates returns the certificates in text.
func certificates(text []byte) []*x509.Certificate {
	all, _ := certs.Parse(text) // those that can be parsed
	return all
}
