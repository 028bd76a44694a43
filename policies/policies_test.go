// Package policies_test checks that all policy folders have the same structure.
package policies_test

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/policy"
	signals "outboard.dev/outboard/signal/standard"
)

const module = "outboard.dev/outboard/"

// sections are the headings of a README, in order, below the policy's name.
var sections = []string{"## What it does", "## Configuration", "## Example", "## Reasons", "## Notes"}

// folders are the names of the policies' folders.
func folders(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != "standard" {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		t.Fatal("no policy has a folder")
	}
	return names
}

// eachPolicy runs the test for every listed policy.
func eachPolicy(t *testing.T, test func(t *testing.T, folder string, kind policy.Type)) {
	for _, kind := range standard.Types() {
		t.Run(kind.Name, func(t *testing.T) { test(t, strings.ToLower(kind.Name), kind) })
	}
}

func TestStandardListsEveryFolder(t *testing.T) {
	var listed []string
	types := standard.Types()
	for _, kind := range types {
		listed = append(listed, strings.ToLower(kind.Name))
	}
	if !slices.IsSortedFunc(types, func(a, b policy.Type) int { return cmp.Compare(a.Name, b.Name) }) {
		t.Errorf("standard.Types is not in order of name: %q", listed)
	}
	slices.Sort(listed)
	if found := folders(t); !slices.Equal(listed, found) {
		t.Errorf("standard.Types lists %q, but the folders are %q; a folder is named for its policy, in lower case", listed, found)
	}
}

// The project's README lists every policy, and that of the examples every example.
func TestProjectReadmesListAll(t *testing.T) {
	examples, err := filepath.Glob("../examples/*/outboard.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatal(examples, err)
	}
	rows := map[string][]string{}
	for _, kind := range standard.Types() {
		rows["README.md"] = append(rows["README.md"], fmt.Sprintf("| [%s](policies/%s) |", kind.Name, strings.ToLower(kind.Name)))
	}
	for _, file := range examples {
		name := filepath.Base(filepath.Dir(file))
		rows["examples/README.md"] = append(rows["examples/README.md"], fmt.Sprintf("| [%s](%s) |", name, name))
	}
	tutorials, err := filepath.Glob("../examples/from-the-tutorials/*/outboard.yaml")
	if err != nil || len(tutorials) == 0 {
		t.Fatal(tutorials, err)
	}
	for _, file := range tutorials {
		name := filepath.Base(filepath.Dir(file))
		rows["examples/from-the-tutorials/README.md"] = append(rows["examples/from-the-tutorials/README.md"], fmt.Sprintf("| [%s](%s) |", name, name))
	}
	rows["examples/README.md"] = append(rows["examples/README.md"], "| [from-the-tutorials](from-the-tutorials) |")
	for page, want := range rows {
		text, err := os.ReadFile(filepath.Join("..", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range want {
			if !strings.Contains(string(text), "\n"+row) {
				t.Errorf("%s has no row %s", page, row)
			}
		}
	}
}

func TestReadmeHasItsSections(t *testing.T) {
	eachPolicy(t, func(t *testing.T, folder string, kind policy.Type) {
		var headings []string
		fenced := false
		for line := range strings.Lines(readme(t, folder)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "```") {
				fenced = !fenced
			}
			if !fenced && (strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "## ")) {
				headings = append(headings, line)
			}
		}
		if want := slices.Concat([]string{"# " + kind.Name}, sections); !slices.Equal(headings, want) {
			t.Errorf("the headings are\n%q, want\n%q", headings, want)
		}
	})
}

// TestReadmeHasEveryField finds fields by their path, as in `device.sizes[].name`.
func TestReadmeHasEveryField(t *testing.T) {
	eachPolicy(t, func(t *testing.T, folder string, kind policy.Type) {
		text := section(readme(t, folder), "## Configuration")
		into := configOf(t, kind)
		if into == nil {
			return
		}
		for _, f := range fieldsOf(t, "", reflect.ValueOf(into).Elem()) {
			i := strings.Index(text, "\n| `"+f.path+"` |")
			if i < 0 {
				t.Errorf("the table of the configuration has no row for `%s`", f.path)
				continue
			}
			row, _, _ := strings.Cut(text[i+1:], "\n")
			columns := strings.Split(row, " | ")
			if len(columns) < 4 {
				t.Errorf("the row of `%s` does not have the columns field, type, default, meaning: %s", f.path, row)
			} else if f.byDefault != "" && !strings.Contains(columns[2], f.byDefault) {
				t.Errorf("the default of `%s` is %s, but its row says %s", f.path, f.byDefault, columns[2])
			}
		}
	})
}

// configOf returns the policy's configuration with its defaults, into which New decodes, or nil if
// it has none.
func configOf(t *testing.T, kind policy.Type) (into any) {
	t.Helper()
	stop := errors.New("only looking")
	if _, err := kind.New(func(v any) error { into = v; return stop }); into != nil && err != stop {
		t.Fatalf("New returned the error %v: must return that of decode as it is", err)
	}
	if into != nil && (reflect.TypeOf(into).Kind() != reflect.Pointer || reflect.TypeOf(into).Elem().Kind() != reflect.Struct) {
		t.Fatalf("New decodes into a %T: must be a pointer to a struct", into)
	}
	return into
}

type configField struct {
	path      string
	byDefault string // "" for the zero value
}

// fieldsOf lists the fields of a configuration. It leaves out fields of Kubernetes types, which
// Kubernetes documents.
func fieldsOf(t *testing.T, prefix string, v reflect.Value) []configField {
	var fields []configField
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			t.Errorf("%s.%s has no json tag", v.Type(), f.Name)
			continue
		}
		path, inner, value := prefix+name, f.Type, v.Field(i)
		for inner.Kind() == reflect.Slice || inner.Kind() == reflect.Pointer {
			if inner.Kind() == reflect.Slice {
				path += "[]"
			}
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && strings.HasPrefix(inner.PkgPath(), module) {
			if value.Type() != inner {
				value = reflect.New(inner).Elem()
			}
			fields = append(fields, fieldsOf(t, path+".", value)...)
			continue
		}
		byDefault := ""
		if value.Kind() != reflect.Slice && !value.IsZero() {
			byDefault = fmt.Sprint(value.Interface())
			if d, ok := value.Interface().(metav1.Duration); ok {
				byDefault = d.Duration.String()
			}
		}
		fields = append(fields, configField{strings.TrimSuffix(path, "[]"), byDefault})
	}
	return fields
}

func TestReadmeExampleIsAConfiguration(t *testing.T) {
	eachPolicy(t, func(t *testing.T, folder string, kind policy.Type) {
		example := section(readme(t, folder), "## Example")
		blocks := 0
		for rest := example; ; blocks++ {
			_, after, found := strings.Cut(rest, "\n```yaml\n")
			if !found {
				break
			}
			var block string
			block, rest, _ = strings.Cut(after, "\n```")
			c, err := config.Parse("README.md", []byte(block), config.Types{Policies: standard.Types(), Signals: signals.Types()})
			if err != nil {
				t.Errorf("the example is not valid: %v", err)
				continue
			}
			uses := slices.ContainsFunc(c.Profiles, func(p config.Profile) bool {
				return slices.ContainsFunc(p.Policies, func(p config.Policy) bool { return p.Type == kind.Name })
			})
			if !uses {
				t.Errorf("the example does not use %s", kind.Name)
			}
		}
		if blocks == 0 {
			t.Error("the section Example has no block of YAML")
		}
	})
}

func TestReadmeHasEveryReason(t *testing.T) {
	eachPolicy(t, func(t *testing.T, folder string, kind policy.Type) {
		text := section(readme(t, folder), "## Reasons")
		codes := map[string]bool{}
		for _, r := range reasonsIn(t, folder) {
			if codes[r.Code] {
				t.Errorf("two reasons have the code %q", r.Code)
			}
			codes[r.Code] = true
			if !strings.Contains(text, "\n| `"+r.Code+"` | "+r.Text+" |") {
				t.Errorf("the table of reasons has no row `%s` with the text %q", r.Code, r.Text)
			}
		}
		for line := range strings.Lines(text) {
			if code, ok := strings.CutPrefix(line, "| `"); ok {
				if code, _, _ = strings.Cut(code, "`"); !codes[code] {
					t.Errorf("the table of reasons has %q, which is not in the code", code)
				}
			}
		}
	})
}

// reasonsIn finds the policy.Reason literals in the folder's code.
func reasonsIn(t *testing.T, folder string) []policy.Reason {
	t.Helper()
	var reasons []policy.Reason
	for _, file := range sources(t, folder, false) {
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if kind, ok := literal.Type.(*ast.SelectorExpr); !ok || kind.Sel.Name != "Reason" {
				return true
			}
			var r policy.Reason
			for _, element := range literal.Elts {
				pair, ok := element.(*ast.KeyValueExpr)
				if !ok {
					t.Errorf("a Reason in %s has fields without names", folder)
					return true
				}
				switch key := pair.Key.(*ast.Ident); key.Name {
				case "Code":
					if fromConfiguration(pair.Value) {
						return true
					}
					r.Code = constant(t, pair.Value)
				case "Text":
					r.Text = constant(t, pair.Value)
				}
			}
			reasons = append(reasons, r)
			return true
		})
	}
	return reasons
}

// fromConfiguration reports whether a Code is, or begins with, a field of the policy's
// configuration, such as the name of a rule.
func fromConfiguration(e ast.Expr) bool {
	if sum, ok := e.(*ast.BinaryExpr); ok {
		return fromConfiguration(sum.X)
	}
	_, ok := e.(*ast.SelectorExpr)
	return ok
}

// constant returns the value of a string literal, or of the sum of several.
func constant(t *testing.T, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if err != nil {
			t.Error(err)
		}
		return text
	case *ast.BinaryExpr:
		return constant(t, e.X) + constant(t, e.Y)
	}
	t.Errorf("a Reason's Code or Text is not a literal but a %T", e)
	return ""
}

func TestFoldersHaveOneShape(t *testing.T) {
	for _, folder := range folders(t) {
		t.Run(folder, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(folder, "setup.go")); err != nil {
				t.Errorf("the code that configures the policy belongs in setup.go: %v", err)
			}
			for _, call := range []string{"Run", "RunScenarios", "Benchmark"} {
				if !calls(sources(t, folder, true), "policytest", call) {
					t.Errorf("no test calls policytest.%s", call)
				}
			}
		})
	}
}

// calls reports whether a file calls the function of the package.
func calls(files []*ast.File, pkg, function string) bool {
	found := false
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == function {
					if x, ok := f.X.(*ast.Ident); ok && x.Name == pkg {
						found = true
					}
				}
			}
			return !found
		})
	}
	return found
}

// TestTypes: a Type decodes at most once and reports errors about values by field.
func TestTypes(t *testing.T) {
	eachPolicy(t, func(t *testing.T, _ string, kind policy.Type) {
		decoded := 0
		p, err := kind.New(func(any) error { decoded++; return nil })
		if decoded > 1 {
			t.Errorf("New called decode %d times", decoded)
		}
		if (p == nil) == (err == nil) {
			t.Errorf("New returned the policy %v and the error %v", p, err)
		}
		errs := []error{err}
		var several utilerrors.Aggregate
		if errors.As(err, &several) {
			errs = several.Errors()
		}
		for _, e := range errs {
			var atField *field.Error
			if err != nil && !errors.As(e, &atField) {
				t.Errorf("New returned the %T %q for its defaults: must be a field.Error", e, e)
			}
		}
	})
}

// sources parses the Go files of the folder, either its tests or the others.
func sources(t *testing.T, folder string, tests bool) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") != tests {
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

func readme(t *testing.T, folder string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section returns the text from the heading to the next heading of its level.
func section(text, heading string) string {
	_, after, _ := strings.Cut(text, "\n"+heading+"\n")
	before, _, _ := strings.Cut(after, "\n## ")
	return before
}
