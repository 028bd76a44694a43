package format

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
)

// Document describes the form of a document in YAML or JSON. It is part of the configuration of a
// source.
type Document struct {
	// About is what the keys of the numbers are: names of Nodes (the default), or other Keys.
	About *policy.SignalAbout `json:"about" values:"Nodes,Keys"`
	// Items is the JSONPath of the items of the document, such as {.hosts[*]}. Without Items, the
	// document is a mapping of keys to numbers, or, with Value alone, has one number.
	Items string `json:"items"`
	// Key is the JSONPath of the key inside each item, such as {.name}.
	Key string `json:"key"`
	// Value is the JSONPath of the number inside each item, such as {.load}, or, without Items,
	// inside the document.
	Value string `json:"value"`
}

// NumbersAbout returns what the keys of the document's numbers are.
func (c *Document) NumbersAbout() policy.SignalAbout {
	switch {
	case c.Items == "" && c.Value != "": // one number
		return policy.AboutKeys
	case c.About == nil:
		return policy.AboutNodes
	}
	return *c.About
}

// Validate returns all errors, with paths relative to the document.
func (c *Document) Validate() field.ErrorList {
	var errs field.ErrorList
	at := func(name string) *field.Path { return field.NewPath(name) }
	switch {
	case c.Items != "" && c.Key == "":
		errs = append(errs, field.Required(at("key"), "selects the key of an item"))
	case c.Items == "" && c.Key != "":
		errs = append(errs, field.Forbidden(at("key"), "needs items"))
	}
	switch {
	case c.Items != "" && c.Value == "":
		errs = append(errs, field.Required(at("value"), "selects the number of an item"))
	case c.Items == "" && c.Value != "" && c.About != nil && *c.About == policy.AboutNodes:
		errs = append(errs, field.Forbidden(at("about"), "a single number is not about nodes"))
	}
	_, wrong := c.decoder()
	return append(errs, wrong...)
}

func (c *Document) decoder() (d *Decoder, errs field.ErrorList) {
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
	d = &Decoder{parse("items", c.Items), parse("key", c.Key), parse("value", c.Value)}
	return d, errs
}
