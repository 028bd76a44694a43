package httpclient

import (
	"net/url"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Config is how to reach and authenticate to an HTTP server. It is part of the configuration of a
// source, in the field "client".
type Config struct {
	// CAFile is the file with the CAs of the server's certificate. Default: those of the system.
	CAFile string `json:"caFile"`
	// CertFile is the path of the client certificate. Needs keyFile.
	CertFile string `json:"certFile"`
	// KeyFile is the path of the key of the client certificate. Needs certFile.
	KeyFile string `json:"keyFile"`
	// BearerTokenFile is a file with a token, which is read for each request.
	BearerTokenFile string `json:"bearerTokenFile" oneOf:"credentials?"`
	// Username is the name for basic authentication. Needs passwordFile.
	Username string `json:"username" oneOf:"credentials?"`
	// PasswordFile is the path of the file with the password of username.
	PasswordFile string `json:"passwordFile"`
}

// Files returns the paths of files, by their fields in the configuration of the source.
func (c *Config) Files() map[string]*string {
	return map[string]*string{
		"client.caFile": &c.CAFile, "client.certFile": &c.CertFile, "client.keyFile": &c.KeyFile,
		"client.bearerTokenFile": &c.BearerTokenFile, "client.passwordFile": &c.PasswordFile,
	}
}

// Validate returns all errors of the client of a server at the address.
func (c *Config) Validate(address string) field.ErrorList {
	at := field.NewPath("client")
	var errs field.ErrorList
	together := func(a, b string, given, other string) {
		if given != "" && other == "" {
			errs = append(errs, field.Required(at.Child(b), "goes with "+a))
		}
	}
	together("certFile", "keyFile", c.CertFile, c.KeyFile)
	together("keyFile", "certFile", c.KeyFile, c.CertFile)
	together("username", "passwordFile", c.Username, c.PasswordFile)
	together("passwordFile", "username", c.PasswordFile, c.Username)
	if u, err := url.Parse(address); err == nil && u.Scheme == "http" {
		for _, f := range []struct{ name, value string }{{"caFile", c.CAFile}, {"certFile", c.CertFile}} {
			if f.value != "" {
				errs = append(errs, field.Forbidden(at.Child(f.name), "needs https, but the address is "+Address(u)))
			}
		}
	}
	return errs
}

// ValidateURL returns the errors of the URL of a server, none if there is none. rule describes what
// the URL must be.
func ValidateURL(at *field.Path, text, rule string) field.ErrorList {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return field.ErrorList{field.Invalid(at, text, "must be "+rule)}
	case u.User != nil:
		return field.ErrorList{field.Invalid(at, text, "must not contain a password: use client.username and client.passwordFile")}
	}
	return nil
}
