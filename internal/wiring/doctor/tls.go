package doctor

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/wiring"
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
	if t.CAFile+t.CAData != "" {
		e.server(t)
	}
	e.client(t)
}

// scheme checks http:// and https://. It returns false if nothing else about TLS is worth a
// finding.
func (e *extenderAt) scheme() bool {
	x, u := e.extender, e.url()
	served, remote := e.outboard && e.Config.Serving.TLS != nil, hostOf(u.Hostname()) != "loopback"
	corrected := "https://" + strings.TrimPrefix(x.URLPrefix, "http://")
	switch plain := u.Scheme == "http"; {
	case plain && (served || x.EnableHTTPS && !e.outboard):
		severity, message, why := Error, "urlPrefix begins with http://, and Outboard serves TLS", "every call fails with status 400"
		if !e.outboard { // it may serve plain text
			severity, message, why = Warning, "enableHTTPS is true, and urlPrefix begins with http://", "enableHTTPS does not change the scheme: the calls are plain text"
		}
		e.report(severity, "WrongScheme", "urlPrefix", message, why, "write urlPrefix: "+corrected)
		x.URLPrefix = corrected // the other findings are about that
	case plain && e.outboard && remote:
		e.report(Error, "WrongScheme", "urlPrefix", "urlPrefix begins with http://, and Outboard serves plain HTTP to its own machine only", "every call fails", "configure serving.tls in "+e.ConfigFile+", and write https://")
		x.URLPrefix = corrected
		return false
	case plain && remote:
		e.report(Warning, "UnverifiedServer", "urlPrefix", "urlPrefix begins with http://", "anyone on the way can read the calls, and decide on which nodes pods run", "write https://, with enableHTTPS: true and tlsConfig.caFile")
	case !plain && e.outboard && !served:
		severity, why := Error, "every call fails"
		if e.chartServes() {
			severity, why = Warning, why+", unless the Helm chart installs the file: the chart sets serving.tls"
		}
		e.report(severity, "WrongScheme", "urlPrefix", "urlPrefix begins with https://, and "+e.ConfigFile+" has no serving.tls", why, "configure serving.tls, or write http:// if Outboard runs on the same machine or in the same pod")
		return severity == Warning
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
	x, u := e.extender, e.url()
	https := u.Scheme == "https"
	if t.CAFile+t.CAData != "" {
		return
	}
	fix := "tlsConfig.caFile: " + folder(t.CertFile) + "/ca.crt, and put the CA of Outboard's certificate there"
	if !e.outboard {
		fix = "tlsConfig.caFile to a file with the CA of the extender's certificate"
	}
	if https && !x.EnableHTTPS && !t.Insecure {
		severity := Warning
		if ip := net.ParseIP(u.Hostname()); hostOf(u.Hostname()) == "loopback" || ip != nil && ip.IsPrivate() || clusterName(u.Hostname()) {
			severity = Error // public authorities sign no certificates for these hosts
		}
		e.report(severity, "ServerCertificate", "enableHTTPS", "enableHTTPS is not true, and https:// needs it",
			"kube-scheduler accepts certificates of the authorities in its image only: every call fails unless one of them signed that of the extender", "set enableHTTPS: true and "+fix)
	}
	if x.EnableHTTPS || https && t.Insecure {
		severity := Error
		if !e.outboard && hostOf(u.Hostname()) == "loopback" {
			severity = Warning
		}
		e.report(severity, "UnverifiedServer", "tlsConfig", "there is no caFile or caData",
			"kube-scheduler then accepts any certificate, silently: anyone who can redirect the calls decides on which nodes pods run",
			"set "+fix)
	}
}

// folder returns the folder of a file beside which others are to be; without a file, the one that
// setup scheduler writes.
func folder(file string) string {
	if path.IsAbs(file) {
		return path.Dir(file)
	}
	return wiring.Directory
}

// files checks the files and the data in tlsConfig.
func (e *extenderAt) files(t *tlsConfig) {
	for _, part := range []struct{ name, file, data string }{{"ca", t.CAFile, t.CAData}, {"cert", t.CertFile, t.CertData}, {"key", t.KeyFile, t.KeyData}} {
		at := e.field("tlsConfig." + part.name + "File")
		if _, err := base64.StdEncoding.DecodeString(part.data); err != nil {
			data := e.field("tlsConfig." + part.name + "Data")
			e.undecodable = true
			e.refuse("InvalidValue", data, "the data is not in base64", "", "write it in base64: base64 -w0 FILE; or write the name of a file in "+part.name+"File")
			e.broken = append(e.broken, data)
		}
		switch m := missing(part.file, e.ReadFile); {
		case part.file == "":
		case !filepath.IsAbs(part.file):
			e.report(Warning, "FileNotFound", "tlsConfig."+part.name+"File", part.file+" is a relative path", "kube-scheduler looks for it in its working directory, not beside this file", "write an absolute path")
		case m != nil && part.data == "":
			e.refuse("FileNotFound", at, m.Error(), "", "add the key, or name a file that the container has")
		}
	}
	if t.Insecure && t.CAFile+t.CAData != "" {
		e.refuse("InvalidValue", e.field("tlsConfig.insecure"), "insecure is true, and there is a CA", "", "remove insecure")
	}
	if text := e.text(t.CAFile, t.CAData); text != nil && len(certificates(text)) == 0 {
		e.refuse("InvalidValue", e.field(dataOrFile("tlsConfig.ca", t.CAData)), "there is no certificate in PEM", "", "put the certificate of the CA there")
	}
	e.pair(t)
}

// pair checks that the certificate of kube-scheduler and its key belong together.
func (e *extenderAt) pair(t *tlsConfig) {
	at := dataOrFile("tlsConfig.cert", t.CertData+t.KeyData)
	fix := "write one pair in " + at + " and " + dataOrFile("tlsConfig.key", t.CertData+t.KeyData) + ", such as client.crt and client.key of one folder of outboard setup certs"
	if (t.CertFile+t.CertData != "") != (t.KeyFile+t.KeyData != "") {
		e.report(Error, "ClientCertificate", "tlsConfig", "a certificate and its key go together, and one of them is missing", "kube-scheduler sends no certificate, and reports nothing", fix)
		return
	}
	cert, private := e.text(t.CertFile, t.CertData), e.text(t.KeyFile, t.KeyData)
	if cert == nil || private == nil {
		return
	}
	switch _, err := tls.X509KeyPair(cert, private); {
	case err != nil && t.CertData+t.KeyData != "":
		e.refuse("ClientCertificate", e.field(at), strings.TrimPrefix(err.Error(), "tls: "), "", fix)
	case err != nil:
		e.report(Error, "ClientCertificate", at, strings.TrimPrefix(err.Error(), "tls: "), "every call fails, because kube-scheduler has no certificate that it can use", fix)
	}
}

// dataOrFile returns the field with the data, or the one with the file.
func dataOrFile(name, data string) string {
	if data != "" {
		return name + "Data"
	}
	return name + "File"
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
	const rejects = "every call fails, because kube-scheduler does not accept the certificate"
	if err := cert.VerifyHostname(name); err != nil {
		e.report(Error, "ServerCertificate", "tlsConfig.serverName", fmt.Sprintf("the certificate of Outboard is for %s, and not for %s", strings.Join(certs.Hosts(cert), ", "), name),
			rejects, "set tlsConfig.serverName to a name in the certificate, or make a certificate with the name, as with outboard setup certs --cluster --renew --server-name "+name+", or for files with --dir DIR in place of --cluster")
	}
	if why := e.refusal(certificates(e.text(t.CAFile, t.CAData)), chain); why != "" {
		e.report(Error, "ServerCertificate", "tlsConfig", "the certificate of Outboard is not valid for the CA: "+why, rejects, "use the CA that signed it, or renew it, as with outboard setup certs --cluster --renew, or for files --dir DIR --renew")
	}
}

// refusal returns why the first certificate of a chain is not valid for any of the CAs, such as
// because it has expired; "" if it is, or no CA is known.
func (c *checker) refusal(cas, chain []*x509.Certificate) string {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, ca := range cas {
		roots.AddCert(ca)
	}
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	if len(cas) == 0 {
		return ""
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, CurrentTime: c.Now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		text, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "x509: "), " (") // it continues with details
		return text
	}
	return ""
}

// client compares the certificate of kube-scheduler with Outboard's configuration.
func (e *extenderAt) client(t *tlsConfig) {
	if !e.outboard || e.Config.Serving.TLS == nil || e.Config.Serving.TLS.ClientCAFile == "" {
		return
	}
	if t.CertFile+t.CertData == "" {
		names := wiring.CertificateNames(clusterName(e.url().Hostname())) // a kube-scheduler that finds a Service by its name runs in a pod
		e.report(Error, "ClientCertificate", "tlsConfig", "there is no certFile or certData",
			"Outboard refuses callers without a certificate, because its configuration has clientCAFile", fmt.Sprintf("set tlsConfig.certFile: %s/%s and tlsConfig.keyFile: %[1]s/%[3]s", folder(t.CAFile), names.Cert, names.Key))
		return
	}
	chain := certificates(e.text(t.CertFile, t.CertData))
	if len(chain) == 0 {
		return
	}
	cert, allowed := chain[0], e.Config.Serving.TLS.AllowedClients
	names := append([]string{cert.Subject.CommonName}, cert.DNSNames...)
	for _, u := range cert.URIs {
		names = append(names, u.String())
	}
	at := dataOrFile("tlsConfig.cert", t.CertData)
	if len(allowed) > 0 && !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(allowed, name) }) {
		e.report(Error, "ClientCertificate", at, fmt.Sprintf("the certificate is for %q, and allowedClients has %s", names[0], strings.Join(allowed, ", ")),
			"Outboard refuses every call with an Error", "add the name to serving.tls.allowedClients of Outboard, or make a certificate with an allowed name")
	}
	if why := e.refusal(certificates(e.readOrOmit(e.Config.Serving.TLS.ClientCAFile, e.ReadConfigFile)), chain); why != "" {
		e.report(Error, "ClientCertificate", at, "the certificate is not valid for serving.tls.clientCAFile of Outboard: "+why,
			"every call fails, because Outboard does not accept the certificate", "use one that this CA signed, or renew it, as with outboard setup certs --cluster --renew, or for files --dir DIR --renew")
	}
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
	if file == "" {
		return nil
	}
	return e.readOrOmit(file, e.ReadFile)
}

// certificates returns the certificates in text.
func certificates(text []byte) []*x509.Certificate {
	all, _ := certs.Parse(text) // those that can be parsed
	return all
}
