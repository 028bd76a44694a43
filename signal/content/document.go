package content

import (
	pathpkg "path"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
)

// Document says what is in a document. It is a part of the configuration of a source.
type Document struct {
	// Format is json, yaml, csv or lmstat. Default yaml, of which json is a part.
	Format Format `json:"format"`
	// About says what the numbers are about: nodes (the default) or keys. Not for
	// lmstat, which is about keys.
	About policy.SignalAbout `json:"about"`
	// Items is where the items are, and Key and Value where each has its key and its
	// number: JSONPath such as {.hosts[*]}, {.name} and {.load}. Without Items the
	// document is a mapping of keys to numbers; with Value alone, one number. For
	// json and yaml.
	Items string `json:"items"`
	// For csv, Key and Value are the names of columns.
	Key   string `json:"key"`
	Value string `json:"value"`
	// IgnoreHosts are patterns (*.cluster.example.com) of hosts whose seats are not
	// counted as used. For lmstat.
	IgnoreHosts []string `json:"ignoreHosts"`
}

// Defaults is the Document of which everything is missing.
func Defaults() Document { return Document{Format: YAML} }

// Format is how a document is written.
type Format string

// The formats.
const (
	JSON   Format = "json"
	YAML   Format = "yaml"
	CSV    Format = "csv"
	Lmstat Format = "lmstat"
)

// NumbersAbout is what the numbers of the document are about.
func (c *Document) NumbersAbout() policy.SignalAbout {
	switch {
	case c.Format == Lmstat, c.Items == "" && c.Value != "" && c.Format != CSV: // licenses, or one number
		return policy.AboutKeys
	case c.About == "":
		return policy.AboutNodes
	}
	return c.About
}

// Validate returns what is wrong, with paths relative to the document.
func (c *Document) Validate() field.ErrorList {
	errs := fields.OneOf(field.NewPath("format"), c.Format, JSON, YAML, CSV, Lmstat)
	if len(errs) > 0 {
		return errs
	}
	forbid := func(when bool, name, why string) {
		if when {
			errs = append(errs, field.Forbidden(field.NewPath(name), why))
		}
	}
	require := func(when bool, name, why string) {
		if when {
			errs = append(errs, field.Required(field.NewPath(name), why))
		}
	}
	structured := c.Format == JSON || c.Format == YAML
	forbid(!structured && c.Items != "", "items", "is for json and yaml")
	forbid(c.Format == Lmstat && c.Key != "", "key", "lmstat has a form of its own")
	forbid(c.Format == Lmstat && c.Value != "", "value", "lmstat has a form of its own")
	forbid(c.Format == Lmstat && c.About == policy.AboutNodes, "about", "licenses are about keys")
	forbid(c.Format != Lmstat && len(c.IgnoreHosts) > 0, "ignoreHosts", "is for lmstat")
	require(c.Format == CSV && c.Key == "", "key", "names the column with the key")
	require(c.Format == CSV && c.Value == "", "value", "names the column with the number")
	require(structured && c.Items != "" && c.Key == "", "key", "says where an item has its key")
	require(structured && c.Items != "" && c.Value == "", "value", "says where an item has its number")
	forbid(structured && c.Items == "" && c.Key != "", "key", "needs items")
	if c.About != "" {
		errs = append(errs, fields.OneOf(field.NewPath("about"), c.About, policy.AboutNodes, policy.AboutKeys)...)
	}
	forbid(structured && c.Items == "" && c.Value != "" && c.About == policy.AboutNodes, "about", "one number is not about nodes")
	for i, pattern := range c.IgnoreHosts {
		if _, err := pathpkg.Match(pattern, ""); err != nil || pattern == "" {
			errs = append(errs, field.Invalid(field.NewPath("ignoreHosts").Index(i), pattern, "must be a pattern such as *.cluster.example.com"))
		}
	}
	_, wrong := c.paths()
	return append(errs, wrong...)
}

// paths are the parsed paths of a document in JSON or YAML; nil where it has none.
type paths struct{ items, key, value *path }

func (c *Document) paths() (p paths, errs field.ErrorList) {
	if c.Format != JSON && c.Format != YAML {
		return p, nil
	}
	parse := func(name, text string) *path {
		if text == "" {
			return nil
		}
		parsed, err := parsePath(text)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath(name), text, err.Error()))
		}
		return parsed
	}
	p = paths{parse("items", c.Items), parse("key", c.Key), parse("value", c.Value)}
	return p, errs
}
