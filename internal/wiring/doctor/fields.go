package doctor

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"outboard.dev/outboard/internal/config/strictyaml"
)

// renamed are fields with other spellings, often those of other versions or programs.
var renamed = map[string]string{
	"enableHttps": "enableHTTPS", "enableHTTPs": "enableHTTPS", "enableTLS": "enableHTTPS", "ignoreable": "ignorable", "url": "urlPrefix",
	"timeout": "httpTimeout", "trustedCaFile": "caFile", "trustedCAFile": "caFile", "caCertFile": "caFile", "caCert": "caFile", "caBundle": "caData",
	"insecureSkipVerify": "insecure", "insecureSkipTLSVerify": "insecure",
	"lockObjectName": "resourceName", "lockObjectNamespace": "resourceNamespace",
}

// fields decodes the configuration, and reports what is unknown or has the wrong type. A misspelled
// or misplaced field with one right correction is corrected for the following checks, so that one
// run finds all problems. fields returns false if nothing can be checked.
func (c *checker) fields() bool {
	var errs strictyaml.Errors
	for range 500 { // a correction may reveal other errors
		var err error
		if c.doc.root, err = strictyaml.FromNode(c.File, c.doc.tree); err != nil {
			return false
		}
		c.doc.config = configuration{}
		if errs = nil; !errors.As(c.doc.root.Decode(&c.doc.config), &errs) || !slices.ContainsFunc(errs, c.corrected) {
			break
		}
	}
	if c.doc.refusal == nil {
		return true // kube-scheduler reads what strictyaml does not read
	}
	if c.unindented(errs) {
		return false
	}
	for _, e := range errs {
		if e.Kind != "Unknown field" {
			c.misread("InvalidValue", e, e.Message(), "")
			continue
		}
		message, fix := unknownField+": "+e.Rule, ""
		if near := nearest(e); near != "" {
			message, fix = unknownField, "write "+near
			if parent, _ := locate(c.doc.tree, e.Path); parent != nil && find(parent, near) >= 0 {
				fix = "remove it: " + near + " is set, too"
			}
		}
		c.misread("UnknownField", e, message, fix)
	}
	for _, e := range errs {
		c.broken = append(c.broken, e.Path)
	}
	return true
}

const unknownField = "kube-scheduler does not know this field"

// misread reports an error of decoding.
func (c *checker) misread(code string, e *strictyaml.Error, message, fix string) {
	c.undecodable = true
	c.refuseAt(code, c.doc.text.Line(e.Line), e.Path, message, "", fix)
}

// unindented reports fields of extenders among those of the file as a whole, as texts that are
// copied from pages have them.
func (c *checker) unindented(errs strictyaml.Errors) bool {
	inner := slices.Concat(strictyaml.Fields(&extender{}), strictyaml.Fields(&tlsConfig{}))
	lost := slices.DeleteFunc(slices.Clone(errs), func(e *strictyaml.Error) bool { return !slices.Contains(inner, e.Path) })
	if len(lost) < 2 {
		return false
	}
	c.misread("UnknownField", lost[0], fmt.Sprintf("%s, %s and perhaps others are not indented", lost[0].Path, lost[1].Path), "indent the lines as outboard setup scheduler prints them")
	return true
}

func lastOf(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// nearest returns the known field that an unknown one resembles; "" if there is none.
func nearest(e *strictyaml.Error) string {
	if known := renamed[lastOf(e.Path)]; known != "" && strings.Contains(e.Rule, known) {
		return known
	}
	near := ""
	_, _ = fmt.Sscanf(e.Rule, "did you mean %q?", &near) // without it there is none
	return near
}

// plainPath is a path without names that have a dot or another special character.
var plainPath = regexp.MustCompile(`^[\w.\[\]-]+\w$`)

// corrected reports whether an unknown field has one right correction, and makes it.
func (c *checker) corrected(e *strictyaml.Error) bool {
	if c.doc.refusal == nil || e.Kind != "Unknown field" || !plainPath.MatchString(e.Path) {
		return false
	}
	name, near := lastOf(e.Path), nearest(e)
	parent, i := locate(c.doc.tree, e.Path)
	if parent == nil {
		return false
	}
	switch lower := strings.ToLower(strings.TrimSuffix(strings.ToLower(name), "s")); {
	case e.Path != extendersPath && (lower == "extenderconfig" || lower == "extender"):
		c.misread("UnknownField", e, name+" is not a field here: kube-scheduler reads extenders in the list \"extenders\" at the top only", "move it to the list \"extenders\" at the top")
		value := parent.Content[i+1]
		parent.Content = slices.Delete(parent.Content, i, i+2)
		if list, at := locate(c.doc.tree, strings.TrimSuffix(e.Path, "."+name)); value.Tag == "!!null" && list != nil && list.Kind == yaml.SequenceNode {
			// Extenders that are not indented follow the profile in its list.
			end := at + 1
			for end < len(list.Content) && find(list.Content[end], "urlPrefix") >= 0 {
				end++
			}
			value = &yaml.Node{Kind: yaml.SequenceNode, Line: value.Line, Content: slices.Clone(list.Content[at+1 : end])}
			list.Content = slices.Delete(list.Content, at+1, end)
		}
		addExtenders(c.doc.tree, value)
	case near != "" && find(parent, near) < 0:
		c.misread("UnknownField", e, unknownField, "write "+near)
		parent.Content[i].Value = near
	default:
		return false
	}
	return true
}

// addExtenders adds an extender, or a list of some, to the list of the configuration.
func addExtenders(root, value *yaml.Node) {
	items := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		items = value.Content
	}
	if i := find(root, extendersPath); i < 0 {
		key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: extendersPath, Line: value.Line}
		root.Content = append(root.Content, key, &yaml.Node{Kind: yaml.SequenceNode, Line: value.Line, Content: items})
	} else if list := root.Content[i+1]; list.Kind == yaml.SequenceNode {
		list.Content = append(list.Content, items...)
	} else if list.Tag == "!!null" {
		*list = yaml.Node{Kind: yaml.SequenceNode, Line: list.Line, Content: items}
	}
}

// locate returns the mapping or list around the field at path, and the index of its key or item;
// nil if it does not exist.
func locate(root *yaml.Node, path string) (parent *yaml.Node, index int) {
	value := root
	for step := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		parent, index = value, find(value, step)
		if index < 0 {
			return nil, 0
		}
		if value = parent.Content[index]; parent.Kind == yaml.MappingNode {
			value = parent.Content[index+1]
		}
	}
	return parent, index
}

// find returns the index of a key or an item; -1 if it is not there.
func find(n *yaml.Node, step string) int {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return i
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return i
		}
	}
	return -1
}
