package httpclient

import (
	"net/url"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Config is how to reach an HTTP server, and who we are to it. It is a part of the
// configuration of a source, in the field "client".
type Config struct {
	// CAFile holds the authorities that sign the server's certificate; "" (the
	// default) those of the system.
	CAFile string `json:"caFile"`
	// CertFile and KeyFile are our certificate and its key.
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	// ServerName is the name expected in the server's certificate; "" (the default)
	// the host of the address.
	ServerName string `json:"serverName"`
	// BearerTokenFile holds a token, which is read for each request.
	BearerTokenFile string `json:"bearerTokenFile"`
	// Username, and the password in PasswordFile, are sent by basic authentication.
	Username     string `json:"username"`
	PasswordFile string `json:"passwordFile"`
}

// Files are the paths of files, by their fields in the configuration of the source.
func (c *Config) Files() map[string]*string {
	return map[string]*string{
		"client.caFile": &c.CAFile, "client.certFile": &c.CertFile, "client.keyFile": &c.KeyFile,
		"client.bearerTokenFile": &c.BearerTokenFile, "client.passwordFile": &c.PasswordFile,
	}
}

// Validate returns what is wrong with the client of a server at the address.
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
	if c.BearerTokenFile != "" && c.Username != "" {
		errs = append(errs, field.Forbidden(at.Child("username"), "a request has one Authorization, and bearerTokenFile is given"))
	}
	if u, err := url.Parse(address); err == nil && u.Scheme == "http" {
		for _, f := range []struct{ name, value string }{{"caFile", c.CAFile}, {"certFile", c.CertFile}, {"serverName", c.ServerName}} {
			if f.value != "" {
				errs = append(errs, field.Forbidden(at.Child(f.name), "needs https, and the address is "+address))
			}
		}
	}
	return errs
}

// ValidateURL returns what is wrong with the URL of a server. rule says what it must be.
func ValidateURL(at *field.Path, text, rule string) field.ErrorList {
	if text == "" {
		return field.ErrorList{field.Required(at, "must be "+rule)}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return field.ErrorList{field.Invalid(at, text, "must be "+rule)}
	case u.User != nil:
		return field.ErrorList{field.Invalid(at, u.Redacted(), "must not hold a password: use client.username and client.passwordFile")}
	}
	return nil
}
