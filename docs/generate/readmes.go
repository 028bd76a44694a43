package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"outboard.dev/outboard/policies/standard"
)

const (
	tableBegin = "<!-- Generated from the comments, types and defaults in setup.go: change those, and then run: make generate -->"
	tableEnd   = "<!-- End of the generated table. -->"
)

// readmes returns the READMEs of the policies. Between two lines of each is the table of the fields
// of its configuration.
func readmes() []page {
	var all []page
	for _, kind := range standard.Types() {
		path := "policies/" + strings.ToLower(kind.Name) + "/README.md"
		all = append(all, page{path, func(root string) (string, error) {
			text, err := os.ReadFile(filepath.Join(root, path))
			if err != nil {
				return "", err
			}
			before, rest, begins := strings.Cut(string(text), tableBegin+"\n")
			_, after, ends := strings.Cut(rest, tableEnd+"\n")
			if !begins || !ends {
				return "", fmt.Errorf("must have the lines\n%s\n%s", tableBegin, tableEnd)
			}
			table, err := fieldsOf(kind.Name)
			if err != nil {
				return "", err
			}
			return before + tableBegin + "\n\n" + table + tableEnd + "\n" + after, nil
		}})
	}
	return all
}

// fieldsOf returns the table of the fields of a policy's configuration, each with its path.
func fieldsOf(policy string) (string, error) {
	root, err := readSchema()
	if err != nil {
		return "", err
	}
	for _, one := range policiesOf(root) {
		if one.If.Properties["type"].Const == policy {
			d := &document{}
			d.table([]string{"field", "type", "default", "description"}, fieldRows("", one.Then.Properties["config"]))
			return d.String(), nil
		}
	}
	return "", fmt.Errorf("the schema has no policy %s", policy)
}

// fieldRows returns a row for each field of the object at prefix, each followed by those of the
// fields in it.
func fieldRows(prefix string, s *schema) [][]string {
	var rows [][]string
	for _, name := range s.names() {
		f := s.Properties[name]
		path, inner := below(prefix+name, f)
		kind, text := "", plain(f.description())
		switch {
		case inner == nil:
			kind = typeOf("", f)
		case inner.isLabelSelector():
			kind, inner = "label selector", nil
		case f.Items != nil:
			kind = "list of objects"
		default:
			kind = "object"
		}
		if inner != nil {
			for _, rule := range inner.alternatives() {
				if f.Items != nil {
					rule = "In each item, " + strings.ToLower(rule[:1]) + rule[1:]
				}
				text += " " + rule
			}
		}
		rows = append(rows, []string{code(prefix + name), kind, defaultOf(f, slices.Contains(s.Required, name)), text})
		if inner != nil {
			rows = append(rows, fieldRows(path+".", inner)...)
		}
	}
	return rows
}

// isLabelSelector reports whether the object is a LabelSelector, which Kubernetes documents.
func (s *schema) isLabelSelector() bool {
	return slices.Equal(slices.Sorted(maps.Keys(s.Properties)), []string{"matchExpressions", "matchLabels"})
}
