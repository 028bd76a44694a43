package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/policy"
)

// The README of a policy has a row for each reason in its code, with the unit of its numbers.
func TestReasonsAreInTheREADMEs(t *testing.T) {
	checked := 0
	for _, kind := range standard.Types() {
		folder := filepath.Join("policies", strings.ToLower(kind.Name))
		rows, err := policyRows(root, folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range reasonsIn(t, filepath.Join(root, folder)) {
			checked++
			row := slices.IndexFunc(rows, func(row []string) bool { return row[0] == code(r.Code) })
			if row < 0 {
				t.Errorf("%s has no row for the reason %s", folder, r.Code)
			} else if !strings.Contains(rows[row][2], r.Unit) {
				t.Errorf("%s: the row of %s does not have the unit %s", folder, r.Code, r.Unit)
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d reasons are in the code", checked)
	}
}

// placeholder is a name on the page that stands for a value, or for itself.
var placeholder = regexp.MustCompile(`[A-Z]{2,}|\bN\b|ledgers\.outboard\.dev`)

// Each error on the page that is written by hand is in the code.
func TestErrorsAreInTheCode(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, reasonsPath))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), byHand)
	reason, errors, _ := strings.Cut(rest, "\n## Errors")
	if row := "| " + code(engine.NodeUnknown.Code) + " | " + engine.NodeUnknown.Text + " |"; !strings.Contains(reason, row) {
		t.Errorf("the page does not have %s", row)
	}
	texts := textsIn(t, filepath.Join(root, "internal"))
	checked := 0
	for line := range strings.Lines(errors) {
		inner, ok := strings.CutPrefix(line, "| ")
		if row := cells(strings.TrimSpace(inner)); ok && row[0] != "Error" {
			checked++
			shape := placeholder.ReplaceAllStringFunc(regexp.QuoteMeta(row[0]), func(name string) string { return `(?:` + name + `|"?%[a-z]"?)` })
			shape = strings.ReplaceAll(shape, `ledgers\.outboard\.dev`, `%s`)
			if !regexp.MustCompile(shape).MatchString(texts) {
				t.Errorf("no text in internal is like %q", row[0])
			}
		}
	}
	if checked < 20 {
		t.Errorf("the page has %d errors", checked)
	}
}

// textsIn returns the string literals below a folder, one a line.
func textsIn(t *testing.T, folder string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		for _, file := range parseFolder(t, path) {
			ast.Inspect(file, func(n ast.Node) bool {
				if e, ok := n.(ast.Expr); ok {
					if value, isText := text(e); isText {
						all.WriteString(value + "\n")
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// reasonsIn returns the reasons in the code of a folder whose codes do not follow from a configuration.
func reasonsIn(t *testing.T, folder string) []policy.Reason {
	t.Helper()
	var found []policy.Reason
	for _, file := range parseFolder(t, folder) {
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok || literal.Type == nil || nameOf(literal.Type) != "Reason" {
				return true
			}
			var r policy.Reason
			for _, element := range literal.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					value, _ := text(pair.Value)
					switch nameOf(pair.Key) {
					case "Code":
						r.Code = value
					case "Text":
						r.Text = value
					case "Unit":
						r.Unit = value
					}
				}
			}
			if r.Code != "" {
				found = append(found, r)
			}
			return true
		})
	}
	return found
}

// parseFolder returns the Go files in a folder, without tests.
func parseFolder(t *testing.T, folder string) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// text returns the value of a string literal, or of several added up.
func text(e ast.Expr) (value string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(e.Value)
		return value, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		x, ok := text(e.X)
		y, also := text(e.Y)
		return x + y, ok && also && e.Op == token.ADD
	}
	return "", false
}

// nameOf returns the name of an identifier, or of what a selector selects.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
