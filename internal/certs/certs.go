package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"time"

	"outboard.dev/outboard/internal/atomicfile"
)

// backdate is how far in the past a certificate becomes valid, so that hosts whose clocks differ a
// little accept it immediately.
const backdate = 5 * time.Minute

// dnsName matches host names of DNS, also with a wildcard for the first label.
var dnsName = regexp.MustCompile(`^(\*\.)?([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)*[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$`)

// A Pair is a certificate and its private key, both as PEM.
type Pair struct {
	Cert []byte // CERTIFICATE
	Key  []byte // EC PRIVATE KEY, or the argument of LoadAuthority
}

// WriteFiles writes both files, each in one step as atomicfile.Write does, the key readable by its
// owner only. The key is written first: a reader that sees the new certificate finds its key there.
func (p Pair) WriteFiles(certFile, keyFile string) error {
	if err := atomicfile.Write(keyFile, p.Key, 0o600); err != nil {
		return err
	}
	return atomicfile.Write(certFile, p.Cert, 0o644)
}

// AuthorityOptions describe a new authority.
type AuthorityOptions struct {
	// CommonName is the subject's name. Default: "outboard-ca".
	CommonName string

	// NotBefore and NotAfter bound the validity. Default: from five minutes ago, for ten years.
	NotBefore, NotAfter time.Time
}

// An Authority signs certificates. It is safe for concurrent use.
type Authority struct {
	pair Pair
	cert *x509.Certificate
	key  any
}

// NewAuthority creates an authority that signs its own certificate and may sign leaf certificates
// only.
func NewAuthority(opts AuthorityOptions) (*Authority, error) {
	if opts.CommonName == "" {
		opts.CommonName = "outboard-ca"
	}
	notBefore, notAfter, err := validity(opts.NotBefore, opts.NotAfter, 10)
	if err != nil {
		return nil, fmt.Errorf("authority %q: %w", opts.CommonName, err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: opts.CommonName},
		NotBefore:             notBefore,
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	pair, err := signNew(template, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("authority %q: %w", opts.CommonName, err)
	}
	return LoadAuthority(pair)
}

// LoadAuthority returns the authority with this certificate and key. It fails if they do not belong
// together, or if the certificate is not that of an authority.
func LoadAuthority(pair Pair) (*Authority, error) {
	parsed, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	if !parsed.Leaf.IsCA {
		return nil, fmt.Errorf("authority: %q is not the certificate of an authority", parsed.Leaf.Subject.CommonName)
	}
	return &Authority{pair: pair, cert: parsed.Leaf, key: parsed.PrivateKey}, nil
}

// Pair returns the authority's own certificate, for clients and servers that trust it, and its key,
// for LoadAuthority.
func (a *Authority) Pair() Pair { return a.pair }

// Request describes one certificate to issue.
type Request struct {
	// CommonName is the subject's name: for a client, the name by which its server identifies it.
	CommonName string

	// Organizations are the subject's organizations, which Kubernetes reads as groups. Default:
	// none.
	Organizations []string

	// Hosts are the IP addresses and DNS names the certificate is valid for. A server needs at
	// least one.
	Hosts []string

	// URIs are further names, such as SPIFFE identities. Default: none.
	URIs []string

	// Server and Client are the permitted uses of the certificate. At least one is required.
	Server, Client bool

	// NotBefore and NotAfter bound the validity. Default: from five minutes ago, for one year, but
	// no longer than the authority's own.
	NotBefore, NotAfter time.Time

	// Former, if it is a valid pair, has the key that the new certificate is for. Programs that
	// read the certificate and the key one after the other then find a matching pair at any moment
	// of the replacement. Default: a new key.
	Former Pair
}

// Issue signs a certificate for the former or for a new key.
func (a *Authority) Issue(req Request) (Pair, error) {
	template, err := a.template(req)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate %q: %w", req.CommonName, err)
	}
	if former, err := tls.X509KeyPair(req.Former.Cert, req.Former.Key); err == nil {
		pair, err := sign(template, a.cert, former.Leaf.PublicKey, a.key)
		if err != nil {
			return Pair{}, fmt.Errorf("certificate %q: %w", req.CommonName, err)
		}
		return Pair{Cert: pair, Key: req.Former.Key}, nil
	}
	pair, err := signNew(template, a.cert, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate %q: %w", req.CommonName, err)
	}
	return pair, nil
}

func (a *Authority) template(req Request) (*x509.Certificate, error) {
	if !req.Server && !req.Client {
		return nil, errors.New("neither for a server nor for a client")
	}
	if req.Server && len(req.Hosts) == 0 {
		return nil, errors.New("a server needs at least one host: an IP address or a DNS name")
	}
	notBefore, notAfter, err := validity(req.NotBefore, req.NotAfter, 1)
	if err != nil {
		return nil, err
	}
	if req.NotAfter.IsZero() && notAfter.After(a.cert.NotAfter) {
		notAfter = a.cert.NotAfter
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: req.CommonName, Organization: req.Organizations},
		NotBefore:             notBefore,
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
	if req.Server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if req.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	for _, host := range req.Hosts {
		switch ip := net.ParseIP(host); {
		case ip != nil:
			template.IPAddresses = append(template.IPAddresses, ip)
		case dnsName.MatchString(host) && len(host) <= 253:
			template.DNSNames = append(template.DNSNames, host)
		default:
			return nil, fmt.Errorf("host %q is neither an IP address nor a DNS name", host)
		}
	}
	for _, raw := range req.URIs {
		uri, err := url.Parse(raw)
		if err != nil {
			return nil, err
		}
		template.URIs = append(template.URIs, uri)
	}
	return template, nil
}

// Parse returns the certificates in PEM data.
func Parse(data []byte) (all []*x509.Certificate, err error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certificateBlock {
			continue
		}
		cert, wrong := x509.ParseCertificate(block.Bytes)
		if wrong != nil {
			err = errors.Join(err, wrong)
			continue
		}
		all = append(all, cert)
	}
	return all, err
}

// Hosts returns the DNS names and IP addresses of a certificate.
func Hosts(cert *x509.Certificate) []string {
	names := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

func validity(notBefore, notAfter time.Time, years int) (time.Time, time.Time, error) {
	if notBefore.IsZero() {
		notBefore = time.Now().Add(-backdate)
	}
	if notAfter.IsZero() {
		notAfter = time.Now().AddDate(years, 0, 0)
	}
	if !notBefore.Before(notAfter) {
		return notBefore, notAfter, fmt.Errorf("would end (%s) before it begins (%s)",
			notAfter.Format(time.RFC3339), notBefore.Format(time.RFC3339))
	}
	return notBefore, notAfter, nil
}

// signNew creates a key and a certificate for it; without a parent, one that is signed with its own
// key.
func signNew(template, parent *x509.Certificate, parentKey any) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	cert, err := sign(template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return Pair{}, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: cert, Key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})}, nil
}

// sign returns a certificate for the public key, as PEM.
func sign(template, parent *x509.Certificate, public, parentKey any) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, parentKey)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}), nil
}

const certificateBlock = "CERTIFICATE"
