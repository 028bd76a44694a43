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

	"outboard.dev/outboard/config/strictyaml"
	"outboard.dev/outboard/policy"
)

// Error is one error in a configuration file, with its place.
type Error = strictyaml.Error

// Errors is all that is wrong with a configuration file, in the order of its
// lines, one line of text each.
type Errors = strictyaml.Errors

// Load reads the file at path and builds its policies, which are of the given
// types. If the file is wrong the error is of type [Errors].
func Load(path string, types []policy.Type) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	defer f.Close()
	// One byte more than is allowed, for Parse to see.
	data, err := io.ReadAll(io.LimitReader(f, strictyaml.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	return Parse(path, data, types)
}

// Parse is Load for a file that has been read. file is its name: it is in every
// error, and paths in the configuration are relative to its directory.
func Parse(file string, data []byte, types []policy.Type) (*Config, error) {
	root, err := strictyaml.Parse(file, data)
	if err != nil {
		return nil, err
	}
	c := Default()
	errs := placed(root.Decode(c))
	wrong := c.validateHeader()
	if slices.ContainsFunc(wrong, func(e *field.Error) bool { return e.Type == field.ErrorTypeNotSupported }) {
		// The file is something else; what follows from that would only distract.
		return nil, strictyaml.Join(root.Place(wrong.ToAggregate()))
	}
	c.complete()
	invalid := root.Place(append(wrong, c.validate()...).ToAggregate())
	for i := range c.Profiles {
		for j := range c.Profiles[i].Policies {
			at := field.NewPath("profiles").Index(i).Child("policies").Index(j)
			invalid = append(invalid, c.Profiles[i].Policies[j].build(root, at, types)...)
		}
	}
	invalid = append(invalid, root.Place(c.validateUse().ToAggregate())...)
	// What could not be decoded has its default, which must not be judged.
	invalid = slices.DeleteFunc(invalid, func(e *Error) bool {
		return slices.ContainsFunc(errs, func(cause *Error) bool { return within(e.Path, cause.Path) })
	})
	if err := strictyaml.Join(errs, invalid); err != nil {
		return nil, err
	}
	return c, c.resolve(file)
}

// placed returns the errors in err, which is nil or from package strictyaml.
func placed(err error) Errors {
	errs, _ := err.(Errors)
	return errs
}

// within says whether path is that of outer or of something inside it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (outer == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

// complete fills in the defaults that depend on other fields.
func (c *Config) complete() {
	if t := c.Serving.TLS; t != nil && t.ClientCAFile != "" && t.AllowedClients == nil {
		t.AllowedClients = []string{"system:kube-scheduler"}
	}
	for i := range c.Profiles {
		p := &c.Profiles[i]
		if strings.HasPrefix(p.Path, "/") {
			p.Path = path.Clean(p.Path)
		}
	}
}

// resolve makes paths relative to the directory of the configuration file
// absolute.
func (c *Config) resolve(file string) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	for _, f := range c.files() {
		if *f.path != "" && !filepath.IsAbs(*f.path) {
			*f.path = filepath.Join(filepath.Dir(file), *f.path)
		}
	}
	return nil
}

type fileField struct {
	field *field.Path
	path  *string
}

// files returns the fields that are paths of files.
func (c *Config) files() []fileField {
	files := []fileField{{field.NewPath("cluster", "kubeconfig"), &c.Cluster.Kubeconfig}}
	if t := c.Serving.TLS; t != nil {
		at := field.NewPath("serving", "tls")
		files = append(files,
			fileField{at.Child("certFile"), &t.CertFile},
			fileField{at.Child("keyFile"), &t.KeyFile},
			fileField{at.Child("clientCAFile"), &t.ClientCAFile})
	}
	for i := range c.Signals {
		files = append(files, c.Signals[i].files(field.NewPath("signals").Index(i))...)
	}
	return files
}

// build makes the policy and fills in its effective configuration. at is where it
// is in the document root.
func (p *Policy) build(root strictyaml.Value, at *field.Path, types []policy.Type) Errors {
	if p.Name == "" {
		return nil // told by validate
	}
	known := slices.IndexFunc(types, func(t policy.Type) bool { return t.Name == p.Name })
	if known < 0 {
		return root.Place(field.ErrorList{unknownPolicy(at.Child("name"), p.Name, types)}.ToAggregate())
	}
	written, place := p.Config, root.At(at.Child("config").String())
	var decodeErr error
	decoded := false
	built, err := types[known].New(func(into any) error {
		decoded = true
		if decodeErr = written.Decode(into); decodeErr == nil {
			p.Config, decodeErr = strictyaml.Encode(into)
		}
		return decodeErr
	})
	as := cmp.Or(p.As, p.Name)
	p.Policy, p.As = built, as
	var errs Errors
	switch {
	case decodeErr != nil: // err says the same
		errs = place.Place(decodeErr)
	case err != nil:
		errs = place.Place(err)
	case !decoded && !written.IsZero():
		errs = placed(written.Decode(&struct{}{})) // it takes none
	}
	for _, e := range errs {
		e.Rule += fmt.Sprintf(" (policy %s)", as)
	}
	return errs
}

func unknownPolicy(at *field.Path, name string, types []policy.Type) *field.Error {
	var names []string
	for _, t := range types {
		names = append(names, t.Name)
	}
	rule := "known policies: " + strings.Join(slices.Sorted(slices.Values(names)), ", ")
	if near := strictyaml.Nearest(name, names); near != "" {
		rule = fmt.Sprintf("did you mean %q?", near)
	}
	err := field.NotSupported[string](at, name, nil)
	err.Detail = rule
	return err
}
