package content

import (
	pathpkg "path"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
)

// Document describes the form of a document. It is part of the configuration of a source.
type Document struct {
	// Format is JSON, YAML, CSV or LMStat. Default YAML, which includes JSON.
	Format Format `json:"format" values:"JSON,YAML,CSV,LMStat"`
	// About is what the keys of the numbers are: names of Nodes (the default), or other Keys. Not
	// for LMStat, which has keys.
	About *policy.SignalAbout `json:"about" values:"Nodes,Keys"`
	// Items is the JSONPath of the items of a document in JSON or YAML, such as {.hosts[*]}.
	// Without Items, the document is a mapping of keys to numbers, or, with Value alone, has one
	// number. Not for CSV and LMStat.
	Items string `json:"items"`
	// Key selects the key of each item: in JSON and YAML, a JSONPath inside the item, such as
	// {.name}; in CSV, the name of a column. Not for LMStat.
	Key string `json:"key"`
	// Value selects the number of each item: in JSON and YAML, a JSONPath inside the item, such as
	// {.load}, or, without Items, inside the document; in CSV, the name of a column. Not for
	// LMStat.
	Value string `json:"value"`
	// IgnoreHosts are patterns (*.cluster.example.com) of hosts whose seats do not count as used.
	// For LMStat.
	IgnoreHosts []string `json:"ignoreHosts" items:"must be a pattern such as *.cluster.example.com"`
}

// Defaults is the default Document.
func Defaults() Document { return Document{Format: YAML} }

// Format is the format of a document.
type Format string

const (
	JSON   Format = "JSON"
	YAML   Format = "YAML"
	CSV    Format = "CSV"
	Lmstat Format = "LMStat"
)

// NumbersAbout returns what the keys of the document's numbers are.
func (c *Document) NumbersAbout() policy.SignalAbout {
	switch {
	case c.Format == Lmstat, c.Items == "" && c.Value != "" && c.Format != CSV: // licenses, or one number
		return policy.AboutKeys
	case c.About == nil:
		return policy.AboutNodes
	}
	return *c.About
}

func (c *Document) isAbout(about policy.SignalAbout) bool { return c.About != nil && *c.About == about }

// Validate returns all errors, with paths relative to the document.
func (c *Document) Validate() field.ErrorList {
	var errs field.ErrorList
	if !slices.Contains([]Format{JSON, YAML, CSV, Lmstat}, c.Format) {
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
	forbid(!structured && c.Items != "", "items", "is for JSON and YAML")
	forbid(c.Format == Lmstat && c.Key != "", "key", "LMStat has a fixed form")
	forbid(c.Format == Lmstat && c.Value != "", "value", "LMStat has a fixed form")
	forbid(c.Format == Lmstat && c.isAbout(policy.AboutNodes), "about", "licenses have keys")
	forbid(c.Format != Lmstat && len(c.IgnoreHosts) > 0, "ignoreHosts", "is for LMStat")
	require(c.Format == CSV && c.Key == "", "key", "names the column with the key")
	require(c.Format == CSV && c.Value == "", "value", "names the column with the number")
	require(structured && c.Items != "" && c.Key == "", "key", "selects the key of an item")
	require(structured && c.Items != "" && c.Value == "", "value", "selects the number of an item")
	forbid(structured && c.Items == "" && c.Key != "", "key", "needs items")
	forbid(structured && c.Items == "" && c.Value != "" && c.isAbout(policy.AboutNodes), "about", "a single number is not about nodes")
	for i, pattern := range c.IgnoreHosts {
		if _, err := pathpkg.Match(pattern, ""); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("ignoreHosts").Index(i), pattern, "must be a pattern such as *.cluster.example.com"))
		}
	}
	_, wrong := c.paths()
	return append(errs, wrong...)
}

// paths are the parsed paths of a document in JSON or YAML; nil if they are not set.
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
