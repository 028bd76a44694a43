package doctor

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// How long before its expiry the certificate of a CA, or another one, is reported.
const (
	expiring = 90 * 24 * time.Hour
	ending   = 14 * 24 * time.Hour
)

func (e *extenderAt) tls() {
	x := e.extender
	https := strings.HasPrefix(x.URLPrefix, "https://")
	t := x.TLSConfig
	if t == nil {
		t = &tlsConfig{}
	}
	hasCA := t.CAFile != "" || t.CAData != ""
	caFile := e.CertificateDir + "/ca.crt"
	switch {
	case x.EnableHTTPS && !https && x.URLPrefix != "":
		e.report(Error, "PlaintextPrefix", "urlPrefix", "enableHTTPS is true, and urlPrefix begins with http://",
			"enableHTTPS does not change the scheme: the calls are plain text", "write https://", setText(e.path+".urlPrefix", "https://"+strings.TrimPrefix(x.URLPrefix, "http://")))
	case https && !x.EnableHTTPS && !hasCA && !t.Insecure:
		e.report(Warning, "HTTPSNotEnabled", "enableHTTPS", "urlPrefix begins with https://, and enableHTTPS is not true",
			"kube-scheduler accepts certificates of the authorities in its image only: calls fail unless one of them signed that of the extender",
			"set enableHTTPS: true with tlsConfig.caFile", e.set("enableHTTPS", "true"), setText(e.path+".tlsConfig.caFile", caFile))
	}
	if hasCA && t.Insecure {
		e.report(Error, "CAWithInsecure", "tlsConfig.insecure", "insecure is true, and there is a CA", rejected, "remove insecure", remove(e.path+".tlsConfig.insecure"))
	} else if (x.EnableHTTPS || https && t.Insecure) && !hasCA {
		edits := []edit{setText(e.path+".tlsConfig.caFile", caFile)}
		if t.Insecure {
			edits = append(edits, remove(e.path+".tlsConfig.insecure"))
		}
		e.report(Error, "UnverifiedHTTPS", "tlsConfig", "there is no caFile or caData",
			"kube-scheduler then accepts any certificate, silently: anyone who can redirect the calls decides on which nodes pods run",
			"set tlsConfig.caFile: "+caFile+", and put the CA of Outboard's certificate there", edits...)
	}
	var relative []string
	for _, file := range []string{t.CAFile, t.CertFile, t.KeyFile} {
		if file != "" && !filepath.IsAbs(file) {
			relative = append(relative, file)
		}
	}
	if len(relative) > 0 {
		e.report(Warning, "RelativePath", "tlsConfig", "relative paths: "+strings.Join(relative, ", "),
			"kube-scheduler looks for them in its working directory, not beside this file", "write absolute paths")
	}
	if hasCA {
		e.authorities(t)
		e.server(t)
	}
	e.client(t)
}

// authorities checks the CA.
func (e *extenderAt) authorities(t *tlsConfig) {
	at := "tlsConfig.caData"
	if t.CAData == "" {
		at = "tlsConfig.caFile"
	}
	e.report(Info, "CANotReloaded", at, "kube-scheduler reads the CA once", "when the CA changes, calls fail until kube-scheduler is restarted", "restart kube-scheduler with the CA's successor before Outboard's certificate changes")
	for _, cert := range e.certificates(t.CAFile, t.CAData) {
		if cert.NotAfter.Sub(e.Now) < expiring {
			e.report(Warning, "CAExpires", at, fmt.Sprintf("the CA %q %s", cert.Subject.CommonName, e.ends(cert)),
				"every call fails from then on", "make another CA, and restart kube-scheduler with both before that day")
		}
	}
}

// server checks the certificate of Outboard, if the extender calls Outboard and its file can be read here.
func (e *extenderAt) server(t *tlsConfig) {
	if e.Config == nil || e.Config.Serving.TLS == nil || len(e.matches()) == 0 {
		return
	}
	chain := e.certificates(e.Config.Serving.TLS.CertFile, "")
	if len(chain) == 0 {
		return
	}
	host, _ := e.prefix()
	name := t.ServerName
	if u, err := url.Parse("//" + host); name == "" && err == nil {
		name = u.Hostname()
	}
	cert := chain[0]
	if err := cert.VerifyHostname(name); err != nil {
		names := slices.Clone(cert.DNSNames)
		for _, ip := range cert.IPAddresses {
			names = append(names, ip.String())
		}
		e.report(Error, "ServerName", "tlsConfig.serverName", fmt.Sprintf("the certificate of Outboard is for %s, and not for %s", strings.Join(names, ", "), name),
			"every call fails, because kube-scheduler does not accept the certificate", "set tlsConfig.serverName to a name in the certificate, or make a certificate with the name")
	}
	if e.unknownTo(e.certificates(t.CAFile, t.CAData), chain) {
		e.report(Error, "UnknownAuthority", "tlsConfig", "the CA did not sign the certificate of Outboard", "every call fails, because kube-scheduler does not accept the certificate", "use the CA that signed it")
	}
	if cert.NotAfter.Sub(e.Now) < ending {
		e.elsewhere(Warning, "CertificateExpires", e.Config.Serving.TLS.CertFile, "", "the certificate of Outboard "+e.ends(cert),
			"every call fails from then on", "replace the file; Outboard uses it for the next connection")
	}
}

// unknownTo reports whether there are CAs, and none of them signed the first certificate of the chain.
func (e *extenderAt) unknownTo(cas, chain []*x509.Certificate) bool {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, ca := range cas {
		roots.AddCert(ca)
	}
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, CurrentTime: e.Now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	unknown := x509.UnknownAuthorityError{}
	return len(cas) > 0 && errors.As(err, &unknown)
}

// client compares the certificate of kube-scheduler with Outboard's configuration.
func (e *extenderAt) client(t *tlsConfig) {
	if e.Config == nil || e.Config.Serving.TLS == nil || e.Config.Serving.TLS.ClientCAFile == "" || len(e.matches()) == 0 {
		return
	}
	if t.CertFile == "" && t.CertData == "" {
		e.report(Error, "NoClientCertificate", "tlsConfig", "there is no certFile or certData",
			"Outboard refuses callers without a certificate, because its configuration has clientCAFile",
			"set tlsConfig.certFile and keyFile", setText(e.path+".tlsConfig.certFile", e.CertificateDir+"/client.crt"), setText(e.path+".tlsConfig.keyFile", e.CertificateDir+"/client.key"))
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
			"Outboard refuses every call with status 403", "add the name to serving.tls.allowedClients of Outboard, or make a certificate with an allowed name")
	}
	if e.unknownTo(e.certificates(e.Config.Serving.TLS.ClientCAFile, ""), chain) {
		e.report(Error, "UnknownAuthority", "tlsConfig.certFile", "no CA in serving.tls.clientCAFile of Outboard signed the certificate of kube-scheduler",
			"every call fails, because Outboard does not accept the certificate", "use a certificate that this CA signed")
	}
	if cert.NotAfter.Sub(e.Now) < ending {
		e.report(Warning, "CertificateExpires", "tlsConfig.certFile", "the certificate of kube-scheduler "+e.ends(cert),
			"Outboard refuses every call from then on", "replace the file; kube-scheduler reads it for every connection")
	}
}

// ends returns the text of when a certificate expires.
func (e *extenderAt) ends(cert *x509.Certificate) string {
	verb := "ends"
	if cert.NotAfter.Before(e.Now) {
		verb = "ended"
	}
	return verb + " on " + cert.NotAfter.UTC().Format(time.DateOnly)
}

// certificates returns the certificates in data, in base64, or in a file; none if they cannot be
// read here.
func (e *extenderAt) certificates(file, data string) []*x509.Certificate {
	text, err := base64.StdEncoding.DecodeString(data)
	if data == "" && file != "" && e.ReadFile != nil {
		text, err = e.ReadFile(file)
	}
	if err != nil {
		return nil
	}
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, cert)
		}
	}
}
