package config

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/signal"
)

// Error is one error in a configuration file, with its position.
type Error = strictyaml.Error

// Errors are all errors of a configuration file, ordered by line, one line of text each.
type Errors = strictyaml.Errors

// Load reads the file at path and builds its policies and the specifications of its signals, which
// are of the given types. If the file is invalid, the error is of type [Errors].
func Load(path string, types Types) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	defer f.Close()
	// One byte more than the limit, which Parse detects.
	data, err := io.ReadAll(io.LimitReader(f, strictyaml.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	return Parse(path, data, types)
}

// Parse is like Load, for a file that has been read. file is its name: it is in every error, and
// paths in the configuration are relative to its directory.
func Parse(file string, data []byte, types Types) (*Config, error) {
	root, err := strictyaml.Parse(file, data)
	if err != nil {
		return nil, err
	}
	return assemble(file, root, types, func(d *document) Errors { return errorsIn(root.Decode(d)) })
}

// assemble builds the configuration of a document, which decode decodes.
func assemble(file string, root strictyaml.Value, types Types, decode func(*document) Errors) (*Config, error) {
	absolute, err := filepath.Abs(file)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	c := Default()
	d := document{Process: &c.Process}
	l := loader{root: root, directory: filepath.Dir(absolute), types: types}
	l.undecoded = decode(&d)
	c.Bypass, c.Profiles = d.Bypass, d.Profiles
	header := c.validateHeader()
	if slices.ContainsFunc(header, func(e *field.Error) bool { return e.Type == field.ErrorTypeNotSupported }) {
		// The file is of another kind; further errors would only distract.
		return nil, strictyaml.Join(root.Locate(header.ToAggregate()))
	}
	c.complete(root)
	l.report(header)
	l.report(c.validate())
	if !types.Unserved {
		l.report(c.Serving.validateCallers(field.NewPath("serving")))
	}
	l.report(c.validatePorts(!root.At("admin.address").IsZero()))
	l.report(l.resolve(c.files()))
	l.signals(c, d.Signals)
	for i := range c.Profiles {
		for j := range c.Profiles[i].Policies {
			l.policy(&c.Profiles[i].Policies[j], field.NewPath("profiles").Index(i).Child("policies").Index(j))
		}
	}
	l.report(c.completeManagedResources())
	c.completeShortlists()
	l.report(c.validateUse())
	if err := l.err(); err != nil {
		return nil, err
	}
	c.Warnings = root.Locate(slices.Concat(c.warnUncounted(), c.warnUnreported(), c.warnUnused(), c.warnManaged(), c.warnPolicies()).ToAggregate())
	return c, nil
}

// loader builds what a configuration names, and collects errors.
type loader struct {
	root      strictyaml.Value
	directory string // for relative paths of files
	types     Types

	undecoded Errors // errors of decoding
	invalid   Errors
}

// report adds errors about fields of the document.
func (l *loader) report(errs field.ErrorList) {
	l.invalid = append(l.invalid, l.root.Locate(errs.ToAggregate())...)
}

// err returns all errors.
func (l *loader) err() error {
	invalid := slices.DeleteFunc(l.invalid, func(e *Error) bool {
		return slices.ContainsFunc(l.undecoded, func(cause *Error) bool { return l.causes(cause, e) })
	})
	return strictyaml.Join(l.undecoded, invalid)
}

// errorsIn returns the errors in err, which is nil or from package strictyaml.
func errorsIn(err error) Errors {
	errs, _ := err.(Errors)
	return errs
}

// causes reports whether e is only a consequence of the error cause: a field that could not be
// decoded has its default, and so has a field whose name is misspelled.
func (l *loader) causes(cause, e *Error) bool {
	if within(e.Path, cause.Path) {
		return true
	}
	if e.Kind == "Required value" && strings.HasPrefix(e.Rule, "must set one of ") && within(cause.Path, e.Path) {
		return true // it is set, but not decoded
	}
	meant := ""
	if _, err := fmt.Sscanf(cause.Rule, "did you mean %q?", &meant); err != nil {
		return false
	}
	missing := cause.Path[:strings.LastIndexByte(cause.Path, '.')+1] + meant
	return l.root.At(missing).IsZero() && within(e.Path, missing)
}

// within reports whether path is outer or inside outer.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (outer == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

// complete fills in the defaults that depend on other fields.
func (c *Config) complete(root strictyaml.Value) {
	if root.At("serving.address").IsZero() {
		c.Serving.Address = "127.0.0.1:8888" // 8443 is TLS to everybody
		if c.Serving.TLS != nil {
			c.Serving.Address = "127.0.0.1:8443"
		}
	}
	if a, _ := parseAddress(nil, c.Serving.Address); a.loopback && root.At("serving.shutdownDelay").IsZero() {
		c.Serving.ShutdownDelay = 0 // no caller can move to another replica
	}
	if t := c.Serving.TLS; t != nil && t.ClientCAFile != "" && t.AllowedClients == nil {
		t.AllowedClients = []string{SchedulerClient}
	}
	for i := range c.Profiles {
		p := &c.Profiles[i]
		if strings.HasPrefix(p.Path, "/") {
			p.Path = path.Clean(p.Path)
		}
	}
}

// fileField is a field with the path of a file.
type fileField struct {
	field *field.Path
	path  *string
}

// files returns the fields with paths of files, except those of signals.
func (c *Config) files() []fileField {
	files := []fileField{{field.NewPath("clientConnection", "kubeconfig"), &c.ClientConnection.Kubeconfig}, {field.NewPath("log", "decisions"), &c.Log.Decisions}}
	if t := c.Serving.TLS; t != nil {
		at := field.NewPath("serving", "tls")
		files = append(files,
			fileField{at.Child("certFile"), &t.CertFile},
			fileField{at.Child("keyFile"), &t.KeyFile},
			fileField{at.Child("clientCAFile"), &t.ClientCAFile})
	}
	return files
}

// resolve makes paths absolute.
func (l *loader) resolve(files []fileField) field.ErrorList {
	var errs field.ErrorList
	for _, f := range files {
		switch {
		case strings.HasPrefix(*f.path, "~"):
			errs = append(errs, field.Invalid(f.field, *f.path, "must be a path; ~ is not expanded"))
		case strings.TrimSpace(*f.path) != "" && !filepath.IsAbs(*f.path): // a blank path is a missing one
			*f.path = filepath.Join(l.directory, *f.path)
		}
	}
	return errs
}

// policy builds a policy and fills in its effective configuration. at is its path.
func (l *loader) policy(p *Policy, at *field.Path) {
	named := func(name string) int {
		return slices.IndexFunc(l.types.Policies, func(t policy.Type) bool { return t.Name == name })
	}
	if p.Type == "" {
		rule := "must be a type of policy"
		if named(p.Name) >= 0 {
			rule += ": did you mean type: " + p.Name + "? name is what this policy is called here"
		}
		l.report(field.ErrorList{field.Required(at.Child("type"), rule)})
		return
	}
	known := named(p.Type)
	if known < 0 {
		l.report(field.ErrorList{unknownPolicy(at.Child("type"), p.Type, l.types.Policies)})
		return
	}
	p.Name = cmp.Or(p.Name, p.Type)
	var own []string // the fields of its configuration
	create := func(decode func(any) error) (policy.Policy, error) {
		return l.types.Policies[known].New(func(into any) error {
			err := decode(into)
			own = strictyaml.Fields(into)
			p.declared, _ = into.(policy.InputReader)
			return err
		})
	}
	p.Policy, p.Config = build(l, at.Child("config"), p.Config, create, fmt.Sprintf(" (policy %s)", p.Name))
	for _, e := range l.undecoded {
		if name, beside := strings.CutPrefix(e.Path, at.String()+"."); beside && e.Kind == "Unknown field" && slices.Contains(own, name) {
			e.Rule = fmt.Sprintf("did you mean %q?", "config."+name)
		}
	}
}

// build calls create with the configuration written at at, and returns the result with its
// effective configuration. It adds suffix to errors.
func build[T any](l *loader, at *field.Path, written strictyaml.Value, create func(func(any) error) (T, error), suffix string) (T, strictyaml.Value) {
	var undecoded error
	var files field.ErrorList
	effective, decoded := written, false
	built, err := create(func(into any) error {
		decoded = true
		if undecoded = written.Decode(into); undecoded != nil {
			return undecoded
		}
		if reader, ok := into.(signal.FileReader); ok {
			for name, path := range reader.Files() {
				files = append(files, l.resolve([]fileField{{field.NewPath(name), path}})...)
			}
		}
		effective, undecoded = strictyaml.Encode(into)
		return undecoded
	})
	switch {
	case undecoded != nil:
		// Again, with the fields that can be decoded, to find the other errors.
		_, err = create(func(into any) error {
			_ = written.Decode(into)
			return nil
		})
	case !decoded && !written.IsZero():
		undecoded = written.Decode(&struct{}{}) // it decodes nothing
	}
	value := l.root.At(at.String())
	causes, invalid := value.Locate(undecoded), append(value.Locate(err), value.Locate(files.ToAggregate())...)
	require(written, value.Path(), invalid)
	for _, e := range append(slices.Clip(causes), invalid...) {
		e.Rule += suffix
	}
	l.undecoded = append(l.undecoded, causes...)
	l.invalid = append(l.invalid, invalid...)
	return built, effective
}

// require turns the errors about values of fields that are not written, and have no default, into
// errors about missing fields. root is the path of written.
func require(written strictyaml.Value, root string, errs Errors) {
	for _, e := range errs {
		inner, ok := strings.CutPrefix(e.Path, root+".")
		if ok && e.Kind == "Invalid value" && (e.Value == "0" || e.Value == `""`) && written.At(inner).IsZero() {
			e.Kind, e.Value = "Required value", ""
		}
	}
}

func unknownPolicy(at *field.Path, name string, types []policy.Type) *field.Error {
	var names []string
	for _, t := range types {
		names = append(names, t.Name)
	}
	rule := "known policies: " + strings.Join(slices.Sorted(slices.Values(names)), ", ")
	if near := fields.Nearest(name, names); near != "" {
		rule = fmt.Sprintf("did you mean %q?", near)
	}
	err := field.NotSupported[string](at, name, nil)
	err.Detail = rule
	return err
}
