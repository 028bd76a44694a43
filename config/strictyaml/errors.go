package strictyaml

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxErrors bounds how many errors are told about one document.
const maxErrors = 100

// Error is one thing wrong with a document. Its text is one line:
//
//	config.yaml:14: profiles[0].policies[2].weight: Invalid value: -1: must be between 0 and 100
type Error struct {
	// File is the document's name as given to Parse.
	File string
	// Line is where in the file, from 1; 0 means the file as a whole.
	Line int
	// Path is the field, such as "profiles[0].policies[2].weight"; "" means the
	// document as a whole.
	Path string
	// Kind is the sort of error in the words of Kubernetes ("Invalid value",
	// "Required value", "Duplicate value", "Unknown field"); "" if it has none.
	Kind string
	// Value is the offending value as text, clipped; "" if there is none to show.
	Value string
	// Rule is what would be right, in lower case.
	Rule string
}

// Error returns the error as one line.
func (e *Error) Error() string {
	where := e.File
	if e.Line > 0 {
		where += ":" + strconv.Itoa(e.Line)
	}
	parts := []string{where, e.Path, e.Kind, e.Value, e.Rule}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

// Errors is everything wrong with a document, in the order of its lines. It is
// the type of every error that Parse, Decode and Join return.
type Errors []*Error

// Error returns one line for each error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Join makes one error of several Errors, ordered by line. Nil errors are left
// out; if nothing is left it returns nil. An error of another type becomes one
// without a place. Beyond the first 100 errors there is only a last line that
// says so.
func Join(errs ...error) error {
	var all Errors
	for _, err := range errs {
		var list Errors
		switch {
		case err == nil:
		case errors.As(err, &list):
			all = append(all, list...)
		default:
			all = append(all, &Error{Rule: oneLine(err.Error())})
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	if len(all) > maxErrors {
		all = append(all[:maxErrors:maxErrors], &Error{File: all[0].File, Rule: "too many errors, the rest is left out"})
	}
	return all
}

// Place gives errors about the value v their place in the document. The paths
// of field errors (*field.Error, alone, wrapped, joined, or as the aggregate of a
// field.ErrorList) are relative to v; any other error is about v as a whole.
// Errors of this package stay as they are.
func (v Value) Place(err error) Errors {
	var errs Errors
	for _, e := range flatten(err) {
		var placed Errors
		var fe *field.Error
		switch {
		case errors.As(e, &placed):
			errs = append(errs, placed...)
		case errors.As(e, &fe):
			rel := fe.Field
			if rel == "<nil>" { // how a nil *field.Path prints
				rel = ""
			}
			value := ""
			switch fe.Type {
			case field.ErrorTypeRequired, field.ErrorTypeForbidden, field.ErrorTypeTooLong, field.ErrorTypeTooShort, field.ErrorTypeInternal:
			default:
				value = render(fe.BadValue)
			}
			errs = append(errs, &Error{
				File: v.file(), Line: v.At(rel).line, Path: joinPath(v.Path(), printable(rel)),
				Kind: fe.Type.String(), Value: value, Rule: oneLine(fe.Detail),
			})
		default:
			errs = append(errs, &Error{File: v.file(), Line: v.line, Path: v.Path(), Rule: oneLine(e.Error())})
		}
	}
	return errs
}

// At returns the place of the field at path below v, for errors about it. If
// there is no such field the place has the line of what is nearest around it, and
// the Value is nothing.
func (v Value) At(path string) Value {
	if path == "" {
		return v
	}
	at := Value{doc: v.doc, path: field.NewPath(joinPath(v.Path(), path))}
	at.node, at.line = v.find(path)
	return at
}

// flatten takes err apart into single errors. Wrapping is looked through only if
// there are field errors inside.
func flatten(err error) []error {
	var list []error
	switch e := err.(type) {
	case nil:
		return nil
	case interface{ Errors() []error }: // the aggregate of apimachinery
		list = e.Errors()
	case interface{ Unwrap() []error }:
		list = e.Unwrap()
	default:
		inner := errors.Unwrap(err)
		var fe *field.Error
		if inner == nil || !errors.As(inner, &fe) {
			return []error{err}
		}
		return flatten(inner)
	}
	var flat []error
	for _, e := range list {
		flat = append(flat, flatten(e)...)
	}
	return flat
}

// render shows a value in an error.
func render(value any) string {
	switch v := value.(type) {
	case field.OmitValueType:
		return ""
	case string:
		return strconv.Quote(clip(v, 80))
	}
	text, err := json.Marshal(value)
	if err != nil {
		return clip(printable(fmt.Sprint(value)), 80)
	}
	return clip(printable(string(text)), 80)
}

func joinPath(base, rel string) string {
	if base == "" || rel == "" || rel[0] == '[' {
		return base + rel
	}
	return base + "." + rel
}

func pathText(p *field.Path) string {
	if p == nil {
		return ""
	}
	return printable(p.String())
}

// printable makes text of unknown origin fit for one line of a log.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		s = strconv.QuoteToGraphic(s)
		s = s[1 : len(s)-1]
	}
	return clip(s, 256)
}

func oneLine(s string) string {
	return clip(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; "), 1024)
}

// clip shortens s to at most n bytes and says so.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
