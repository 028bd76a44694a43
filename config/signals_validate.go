package config

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/config/strictyaml"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
)

const (
	// maxSignals bounds how many sources are read.
	maxSignals = 200
	// minClusterTimeout is more than the second for which another cluster is watched.
	minClusterTimeout = 3 * time.Second
	// maxValues bounds what one source can make us keep: some 100 bytes a value.
	maxValues = 100_000
)

var signalName = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$`)

func (c *Config) validateSignals(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := len(c.Signals); n > maxSignals {
		return append(errs, field.TooMany(at, n, maxSignals))
	}
	names := fields.Unique{}
	for i := range c.Signals {
		s, at := &c.Signals[i], at.Index(i)
		switch {
		case s.Name == "":
			errs = append(errs, field.Required(at.Child("name"), "must be what policies call the signal"))
		case !signalName.MatchString(s.Name):
			errs = append(errs, field.Invalid(at.Child("name"), s.Name, "must be at most 63 lower-case letters, digits and -, with a letter or digit at both ends"))
		default:
			errs = append(errs, names.Add(at.Child("name"), s.Name)...)
		}
		errs = append(errs, s.validate(at, c.Cluster.None)...)
	}
	return errs
}

func (s *Signal) validate(at *field.Path, noCluster bool) field.ErrorList {
	errs := fields.Between(at.Child("interval"), s.Interval, time.Second, time.Hour)
	minTimeout := 100 * time.Millisecond
	if s.Cluster != nil {
		minTimeout = minClusterTimeout
	}
	errs = append(errs, fields.Between(at.Child("timeout"), s.Timeout, minTimeout, 5*time.Minute)...)
	if len(errs) == 0 {
		errs = append(errs, fields.Between(at.Child("maxAge"), s.MaxAge, s.Interval, 24*time.Hour)...)
	}
	errs = append(errs, fields.Between(at.Child("maxValues"), s.MaxValues, 1, maxValues)...)
	errs = append(errs, s.Hysteresis.validate(at.Child("hysteresis"))...)
	sources := s.sources()
	for _, source := range sources {
		at := at.Child(source.name)
		errs = append(errs, source.validate(at)...)
		if noCluster && source.ofCluster {
			errs = append(errs, field.Forbidden(at, "needs an API server, but cluster is none"))
		}
	}
	switch len(sources) {
	case 0:
		errs = append(errs, field.Required(at, "must have a source: prometheus, metrics, http, file, configMap, nodes or cluster"))
	case 1:
	default:
		errs = append(errs, field.Forbidden(at.Child(sources[1].name), "a signal has one source, and this one has "+sources[0].name))
	}
	return errs
}

func (h *Hysteresis) validate(at *field.Path) field.ErrorList {
	if h == nil {
		return nil
	}
	var errs field.ErrorList
	switch {
	case h.Above == nil && h.Below == nil:
		errs = append(errs, field.Required(at, "must have a threshold: above or below"))
	case h.Above != nil && h.Below != nil:
		errs = append(errs, field.Forbidden(at.Child("below"), "there is one threshold, and above is given"))
	}
	if h.ClearBelow != nil && (h.Above == nil || *h.ClearBelow > *h.Above) {
		errs = append(errs, field.Invalid(at.Child("clearBelow"), *h.ClearBelow, "needs above, and must not be larger"))
	}
	if h.ClearAbove != nil && (h.Below == nil || *h.ClearAbove < *h.Below) {
		errs = append(errs, field.Invalid(at.Child("clearAbove"), *h.ClearAbove, "needs below, and must not be smaller"))
	}
	errs = append(errs, fields.Between(at.Child("for"), h.For, 0, 24*time.Hour)...)
	return append(errs, fields.Between(at.Child("clearAfter"), h.ClearAfter, 0, 24*time.Hour)...)
}

// source is a source that is given.
type source struct {
	name      string
	validate  func(*field.Path) field.ErrorList
	ofCluster bool // it asks our own API server
}

func (s *Signal) sources() []source {
	var given []source
	add := func(is bool, name string, validate func(*field.Path) field.ErrorList, ofCluster bool) {
		if is {
			given = append(given, source{name, validate, ofCluster})
		}
	}
	add(s.Prometheus != nil, "prometheus", s.Prometheus.validate, false)
	add(s.Metrics != nil, "metrics", s.Metrics.validate, true)
	add(s.HTTP != nil, "http", s.HTTP.validate, false)
	add(s.File != nil, "file", s.File.validate, false)
	add(s.ConfigMap != nil, "configMap", s.ConfigMap.validate, true)
	add(s.Nodes != nil, "nodes", s.Nodes.validate, true)
	add(s.Cluster != nil, "cluster", s.Cluster.validate, false)
	return given
}

func (p *PrometheusSource) validate(at *field.Path) field.ErrorList {
	errs := validateURL(at.Child("address"), p.Address, "the server's URL, such as http://prometheus:9090")
	if strings.TrimSpace(p.Query) == "" {
		errs = append(errs, field.Required(at.Child("query"), "must be a query in PromQL"))
	}
	if p.NodeLabel != "" && p.KeyLabel != "" {
		errs = append(errs, field.Forbidden(at.Child("keyLabel"), "numbers are about nodes or about something else, and nodeLabel is given"))
	}
	return append(errs, p.Client.validate(at.Child("client"), p.Address)...)
}

func (m *MetricsSource) validate(at *field.Path) field.ErrorList {
	return fields.OneOf(at.Child("resource"), m.Resource, "cpu", "memory")
}

func (h *HTTPSource) validate(at *field.Path) field.ErrorList {
	errs := validateURL(at.Child("url"), h.URL, "an http or https URL")
	errs = append(errs, h.Client.validate(at.Child("client"), h.URL)...)
	return append(errs, h.Content.validate(at)...)
}

func (f *FileSource) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if f.Path == "" {
		errs = append(errs, field.Required(at.Child("path"), "must be a file"))
	}
	return append(errs, f.Content.validate(at)...)
}

func (c *ConfigMapSource) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct{ name, value string }{{"namespace", c.Namespace}, {"name", c.Name}, {"key", c.Key}} {
		if f.value == "" {
			errs = append(errs, field.Required(at.Child(f.name), "says where the document is"))
		}
	}
	return append(errs, c.Content.validate(at)...)
}

func (n *NodesSource) validate(at *field.Path) field.ErrorList {
	errs := fields.ExactlyOne(at, map[string]bool{"label": n.Label != "", "annotation": n.Annotation != "", "condition": n.Condition != ""})
	errs = append(errs, fields.OptionalKey(at.Child("label"), n.Label)...)
	errs = append(errs, fields.OptionalKey(at.Child("annotation"), n.Annotation)...)
	return append(errs, fields.OptionalKey(at.Child("condition"), n.Condition)...)
}

func (c *ClusterSource) validate(at *field.Path) field.ErrorList {
	if c.Kubeconfig == "" {
		return field.ErrorList{field.Required(at.Child("kubeconfig"), "must be a file that says how to reach the other cluster")}
	}
	return nil
}

func (c *HTTPClient) validate(at *field.Path, address string) field.ErrorList {
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

func (c *Content) validate(at *field.Path) field.ErrorList {
	errs := fields.OneOf(at.Child("format"), c.Format, JSON, YAML, CSV, Lmstat)
	if len(errs) > 0 {
		return errs
	}
	forbid := func(when bool, name, why string) {
		if when {
			errs = append(errs, field.Forbidden(at.Child(name), why))
		}
	}
	require := func(when bool, name, why string) {
		if when {
			errs = append(errs, field.Required(at.Child(name), why))
		}
	}
	structured := c.Format == JSON || c.Format == YAML
	forbid(!structured && c.Items != "", "items", "is for json and yaml")
	forbid(c.Format == Lmstat && c.Key != "", "key", "lmstat has a form of its own")
	forbid(c.Format == Lmstat && c.Value != "", "value", "lmstat has a form of its own")
	forbid(c.Format == Lmstat && c.About == policy.AboutNodes, "about", "licences are about keys")
	forbid(c.Format != Lmstat && len(c.IgnoreHosts) > 0, "ignoreHosts", "is for lmstat")
	require(c.Format == CSV && c.Key == "", "key", "names the column with the key")
	require(c.Format == CSV && c.Value == "", "value", "names the column with the number")
	require(structured && c.Items != "" && c.Key == "", "key", "says where an item has its key")
	require(structured && c.Items != "" && c.Value == "", "value", "says where an item has its number")
	forbid(structured && c.Items == "" && c.Key != "", "key", "needs items")
	if c.About != "" {
		errs = append(errs, fields.OneOf(at.Child("about"), c.About, policy.AboutNodes, policy.AboutKeys)...)
	}
	forbid(structured && c.Items == "" && c.Value != "" && c.About == policy.AboutNodes, "about", "one number is not about nodes")
	for i, pattern := range c.IgnoreHosts {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			errs = append(errs, field.Invalid(at.Child("ignoreHosts").Index(i), pattern, "must be a pattern such as *.cluster.example.com"))
		}
	}
	return errs
}

func validateURL(at *field.Path, text, rule string) field.ErrorList {
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

// validateUse checks that the signals policies name exist.
func (c *Config) validateUse() field.ErrorList {
	var errs field.ErrorList
	var names []string
	for i := range c.Signals {
		names = append(names, c.Signals[i].Name)
	}
	for i := range c.Profiles {
		for j, p := range c.Profiles[i].Policies {
			reader, ok := p.Policy.(policy.InputReader)
			if !ok {
				continue
			}
			at := field.NewPath("profiles").Index(i).Child("policies").Index(j).Child("config")
			for _, use := range reader.Inputs().Signals {
				known := slices.Index(names, use.Name)
				where := field.NewPath(at.String() + "." + use.Field)
				switch {
				case known < 0:
					errs = append(errs, unknownSignal(where, use.Name, names))
				case use.About != "" && use.About != c.Signals[known].About():
					errs = append(errs, field.Invalid(where, use.Name, fmt.Sprintf("must be about %s, but signals[%d] is about %s", use.About, known, c.Signals[known].About())))
				}
			}
		}
	}
	return errs
}

func unknownSignal(at *field.Path, name string, names []string) *field.Error {
	rule := "there are no signals"
	if len(names) > 0 {
		rule = "known signals: " + strings.Join(slices.Sorted(slices.Values(names)), ", ")
	}
	if near := strictyaml.Nearest(name, names); near != "" {
		rule = fmt.Sprintf("did you mean %q?", near)
	}
	return unsupported(at, name, rule)
}

// files returns the fields that are paths of files.
func (s *Signal) files(at *field.Path) []fileField {
	var files []fileField
	client := func(at *field.Path, c *HTTPClient) {
		files = append(files, fileField{at.Child("caFile"), &c.CAFile}, fileField{at.Child("certFile"), &c.CertFile}, fileField{at.Child("keyFile"), &c.KeyFile},
			fileField{at.Child("bearerTokenFile"), &c.BearerTokenFile}, fileField{at.Child("passwordFile"), &c.PasswordFile})
	}
	if s.Prometheus != nil {
		client(at.Child("prometheus", "client"), &s.Prometheus.Client)
	}
	if s.HTTP != nil {
		client(at.Child("http", "client"), &s.HTTP.Client)
	}
	if s.File != nil {
		files = append(files, fileField{at.Child("file", "path"), &s.File.Path})
	}
	if s.Cluster != nil {
		files = append(files, fileField{at.Child("cluster", "kubeconfig"), &s.Cluster.Kubeconfig})
	}
	return files
}
