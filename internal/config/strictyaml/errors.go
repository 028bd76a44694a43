package strictyaml

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxErrors bounds how many errors of one document are reported.
const maxErrors = 100

// Error is one error of a document. Its text is one line:
//
//	config.yaml:14: profiles[0].policies[2].weight: Invalid value: -1: must be between 0 and 100
type Error struct {
	// File is the document's name as given to Parse.
	File string
	// Line is the line in the file, from 1; 0 means the file as a whole.
	Line int
	// Path is the field, such as "profiles[0].policies[2].weight"; "" means the
	// document as a whole.
	Path string
	// Kind is the sort of error in the words of Kubernetes ("Invalid value",
	// "Required value", "Duplicate value", "Unknown field"); "" if it has none.
	Kind string
	// Value is the offending value as text, clipped; "" if there is none to show.
	Value string
	// Rule is the rule that the value violates, in lower case.
	Rule string
}

// Error returns the error as one line.
func (e *Error) Error() string {
	where := e.File
	if e.Line > 0 {
		where += ":" + strconv.Itoa(e.Line)
	}
	return joined(where, e.Path, e.Message())
}

// Message returns the error without its position.
func (e *Error) Message() string { return joined(e.Kind, e.Value, e.Rule) }

// joined returns the parts that are not empty as one text.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

// Errors are all errors of a document, in the order of its lines. It is
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

// Join returns one error with all Errors, ordered by line; nil if all are nil. An
// error of another type becomes one without a position. Errors after the first 100
// are omitted, and the last line reports that.
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
		all = append(all[:maxErrors:maxErrors], &Error{File: all[0].File, Rule: "too many errors: the others are omitted"})
	}
	return all
}

// Locate adds the position in the document to errors about the value v. The paths
// of field errors (*field.Error, alone, wrapped, joined, or as the aggregate of a
// field.ErrorList) are relative to v; any other error is about v as a whole.
// Errors of this package stay as they are.
func (v Value) Locate(err error) Errors {
	var errs Errors
	for _, e := range flatten(err) {
		var located Errors
		var fe *field.Error
		switch {
		case errors.As(e, &located):
			errs = append(errs, located...)
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

// At returns the field at path below v with its position, for errors about it. If the field does
// not exist, the Value is zero, and its position has the line of the innermost value around it.
func (v Value) At(path string) Value {
	if path == "" {
		return v
	}
	at := Value{doc: v.doc, path: field.NewPath(joinPath(v.Path(), path))}
	at.node, at.line = v.find(path)
	return at
}

// flatten splits err into single errors. It unwraps an error only if it contains field errors.
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
		return strconv.Quote(clip(redact(v), 80))
	}
	text, err := json.Marshal(value)
	if err != nil {
		return clip(printable(fmt.Sprint(value)), 80)
	}
	return clip(printable(string(text)), 80)
}

// Where a value may have credentials: before the host of a URL, in its query, and in an
// Authorization header.
var (
	users   = regexp.MustCompile(`(://).*@|^[^\s:/]+:[^\s/]+@`)
	queries = regexp.MustCompile(`(://[^?]*\?).*`)
	headers = regexp.MustCompile(`(?i)^((?:bearer|basic) ).*`)
)

// redact returns the value without what may be credentials: errors and changes of a configuration
// are logged.
func redact(text string) string {
	return headers.ReplaceAllString(queries.ReplaceAllString(users.ReplaceAllString(text, "$1…@"), "$1…"), "$1…")
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

// printable returns untrusted text as one line without control characters.
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

// clip shortens s to at most n bytes, with a mark if it is shorter.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
