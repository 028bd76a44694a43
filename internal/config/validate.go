package config

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/policy/fields"
)

const (
	maxPolicies = 100 // of one profile
	maxPath     = 256 // bytes of the path of a profile
)

// validateHeader checks apiVersion and kind.
func (c *Config) validateHeader() field.ErrorList {
	var errs field.ErrorList
	check := func(name, value, want string) {
		at := field.NewPath(name)
		switch {
		case value == "":
			errs = append(errs, field.Required(at, "must be "+want))
		case value == "KubeSchedulerConfiguration":
			errs = append(errs, unsupported(at, value, "must be "+want+"; this is a configuration file of kube-scheduler"))
		case value == "ConfigMap":
			errs = append(errs, unsupported(at, value, "must be "+want+"; the configuration is a value in the data of a ConfigMap"))
		case value != want:
			errs = append(errs, unsupported(at, value, "must be "+want))
		}
	}
	check("apiVersion", c.APIVersion, APIVersion)
	check("kind", c.Kind, Kind)
	return errs
}

// validate checks everything except the configurations of policies.
func (c *Config) validate() field.ErrorList {
	errs := c.Serving.validate(field.NewPath("serving"))
	errs = append(errs, c.Admin.validate(field.NewPath("admin"))...)
	errs = append(errs, fields.Check(field.NewPath("clientConnection"), &c.ClientConnection)...)
	errs = append(errs, fields.Check(field.NewPath("ledgers"), &c.Ledgers)...)
	errs = append(errs, fields.Check(field.NewPath("requeue"), &c.Requeue)...)
	errs = append(errs, fields.Check(field.NewPath("log"), &c.Log)...)
	return append(errs, c.validateProfiles(field.NewPath("profiles"))...)
}

func (s *Serving) validate(at *field.Path) field.ErrorList {
	a, errs := parseAddress(at.Child("address"), s.Address)
	remote := len(errs) == 0 && !a.loopback
	switch t := s.TLS; {
	case t != nil:
		errs = append(errs, t.validate(at.Child("tls"))...)
		if remote && t.ClientCAFile == "" && !s.Insecure {
			errs = append(errs, field.Required(at.Child("tls", "clientCAFile"),
				s.Address+" is not a loopback address: every client that reaches it could bind pods, unless client certificates are required; serving.insecure: true accepts that"))
		}
	case remote && s.Insecure: // otherwise validateCallers reports it
		errs = append(errs, field.Required(at.Child("tls"),
			s.Address+" is not a loopback address, and plain HTTP must not leave the host: every client that reaches the address could bind pods"))
	}
	return append(errs, fields.Check(at, s)...)
}

// validateCallers checks that the file says how callers are authenticated. This matters to programs
// that serve calls alone.
func (s *Serving) validateCallers(at *field.Path) field.ErrorList {
	if s.TLS != nil || s.Insecure {
		return nil
	}
	return field.ErrorList{field.Required(at, "must set one of tls and insecure: true; the latter serves plain HTTP on a loopback address, without authentication of callers")}
}

func (t *TLS) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(t.AllowedClients) > 0 && t.ClientCAFile == "" {
		errs = append(errs, field.Required(at.Child("clientCAFile"), "allowedClients needs the CA of client certificates"))
	}
	clients := fields.Unique{}
	for i, name := range t.AllowedClients {
		errs = append(errs, clients.Add(at.Child("allowedClients").Index(i), name)...)
	}
	return errs
}

func (a *Admin) validate(at *field.Path) field.ErrorList {
	admin, errs := parseAddress(at.Child("address"), a.Address)
	if len(errs) > 0 {
		return errs
	}
	errs = fields.Check(at, a)
	if !admin.loopback && a.Expose == ExposeNone {
		errs = append(errs, field.Invalid(at.Child("address"), a.Address,
			"must be a loopback address: every client that reaches it can read metrics and explanations; admin.expose: Metrics opens only the metrics, and All everything"))
	}
	if !admin.loopback && a.Pprof {
		errs = append(errs, field.Invalid(at.Child("pprof"), true,
			a.Address+" is not a loopback address: profiles show memory, and are served only on loopback"))
	}
	return errs
}

// validatePorts checks that both listeners can exist. The error is about the address in the file:
// that of admin, or that of serving if adminWritten is false.
func (c *Config) validatePorts(adminWritten bool) field.ErrorList {
	at, other := field.NewPath("admin", "address"), field.NewPath("serving", "address")
	admin, wrong := parseAddress(at, c.Admin.Address)
	serving, alsoWrong := parseAddress(other, c.Serving.Address)
	switch {
	case len(wrong) > 0 || len(alsoWrong) > 0 || !admin.collides(serving):
		return nil // validate reports an address that is none
	case adminWritten:
		return field.ErrorList{field.Invalid(at, c.Admin.Address, "serving.address is "+c.Serving.Address+": they cannot use the same port")}
	}
	return field.ErrorList{field.Invalid(other, c.Serving.Address, "admin.address is "+c.Admin.Address+" by default: they cannot use the same port")}
}

// address is an address to listen on.
type address struct {
	host     string // "" means all
	port     uint16 // 0 means any
	loopback bool
}

func (a address) collides(b address) bool {
	return a.port == b.port && a.port != 0 && (a.host == b.host || a.host == "" || b.host == "")
}

func parseAddress(at *field.Path, text string) (address, field.ErrorList) {
	host, port, err := net.SplitHostPort(text)
	number, portErr := strconv.ParseUint(port, 10, 16)
	a := address{host: host, port: uint16(number)}
	ip, ipErr := netip.ParseAddr(host)
	switch {
	case err != nil || portErr != nil || ipErr != nil && host != "" && host != "localhost":
		return address{}, field.ErrorList{field.Invalid(at, text, "must be IP:port, localhost:port or :port, with a port of 0..65535")}
	case host == "localhost":
		a.host, a.loopback = "127.0.0.1", true
	case host != "":
		a.host, a.loopback = ip.Unmap().String(), ip.Unmap().IsLoopback()
		if ip.IsUnspecified() {
			a.host = ""
		}
	}
	return a, nil
}

var profilePath = regexp.MustCompile(`^/[A-Za-z0-9._~/-]*$`)

// validateProfiles checks each profile, and what profiles must not share.
func (c *Config) validateProfiles(at *field.Path) field.ErrorList {
	if len(c.Profiles) == 0 {
		return field.ErrorList{field.Required(at, "must have at least one profile")}
	}
	var errs field.ErrorList
	paths, urls, resources := fields.Unique{}, map[string]*field.Path{}, fields.Unique{}
	for i := range c.Profiles {
		p, at := &c.Profiles[i], at.Index(i)
		switch {
		case !profilePath.MatchString(p.Path):
			errs = append(errs, field.Invalid(at.Child("path"), p.Path, "must start with / and have only letters, digits and . _ ~ / -"))
		case len(p.Path) > maxPath:
			errs = append(errs, field.TooLong(at.Child("path"), p.Path, maxPath))
		case paths[p.Path] != nil:
			errs = append(errs, paths.Add(at.Child("path"), p.Path)...)
		default:
			paths.Add(at.Child("path"), p.Path)
			for _, r := range p.Routes() {
				if first := urls[r.Path]; first != nil {
					errs = append(errs, field.Invalid(at.Child("path"), p.Path, fmt.Sprintf("serves %s at URL %s, as %s does", r.Verb, r.Path, first)))
					continue
				}
				urls[r.Path] = at
			}
		}
		errs = append(errs, p.validate(at, !c.ClientConnection.Enabled)...)
		for j, r := range p.ManagedResources {
			at := at.Child("managedResources").Index(j).Child("name")
			errs = append(errs, fields.ExtendedResource(at, r.Name)...)
			errs = append(errs, resources.Add(at, r.Name)...)
		}
	}
	return errs
}

func (p *Profile) validate(at *field.Path, noCluster bool) field.ErrorList {
	errs := fields.Check(at, p)
	if p.OnlyVerb() != "" {
		errs = append(errs, p.validateVerb(at, noCluster)...)
	}
	schedulers := fields.Unique{}
	for i, name := range p.SchedulerNames {
		errs = append(errs, schedulers.Add(at.Child("schedulerNames").Index(i), name)...)
	}
	switch n := len(p.Policies); {
	case n == 0:
		return errs
	case n > maxPolicies:
		return append(errs, field.TooMany(at.Child("policies"), n, maxPolicies))
	}
	scored := slices.ContainsFunc(p.Policies, func(q Policy) bool { return q.Weight != 0 })
	if !scored && p.Listed() > 0 {
		errs = append(errs, field.Invalid(at.Child("shortlist"), *p.Shortlist, "needs a policy with a weight: without scores no node is better than another"))
	}
	if !scored && p.OnlyVerb() == decision.Prioritize {
		errs = append(errs, field.Invalid(at.Child("verb"), string(*p.Verb), "needs a policy with a weight: without one there are no scores"))
	}
	return append(errs, p.validatePolicies(at.Child("policies"))...)
}

// validateVerb checks what is invalid for a profile with one verb.
func (p *Profile) validateVerb(at *field.Path, noCluster bool) field.ErrorList {
	var errs field.ErrorList
	if p.Path == "/" {
		errs = append(errs, field.Invalid(at.Child("path"), p.Path, "must not be / with verb: kube-scheduler never calls /"))
	}
	if p.Listed() > 0 && p.OnlyVerb() != decision.Filter {
		errs = append(errs, field.Invalid(at.Child("shortlist"), *p.Shortlist, "is for filter, but verb is "+string(*p.Verb)))
	}
	if len(p.SchedulerNames) > 0 && p.OnlyVerb() != decision.Bind {
		errs = append(errs, field.Invalid(at.Child("schedulerNames"), p.SchedulerNames, "is for bind, but verb is "+string(*p.Verb)))
	}
	if p.OnlyVerb() == decision.Bind && noCluster {
		errs = append(errs, field.Invalid(at.Child("verb"), string(*p.Verb), "needs an API server to bind pods, but clientConnection.enabled is false"))
	}
	return errs
}

var policyName = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

func (p *Profile) validatePolicies(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := fields.Unique{}
	for i, q := range p.Policies {
		at := at.Index(i)
		where, name := at.Child("name"), q.Name
		if name == "" {
			where, name = at.Child("type"), q.Type
		}
		switch {
		case q.Type == "": // loader.policy reports it
		case q.Name != "" && !policyName.MatchString(q.Name):
			errs = append(errs, field.Invalid(where, q.Name, "must be at most 63 letters, digits and . _ - with a letter or digit at both ends"))
		default:
			for _, err := range names.Add(where, name) {
				err.Detail += `: give them different names with "name"`
				errs = append(errs, err)
			}
		}
	}
	return errs
}

func unsupported(at *field.Path, value, rule string) *field.Error {
	err := field.NotSupported[string](at, value, nil)
	err.Detail = rule
	return err
}
