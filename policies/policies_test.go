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

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/policy"
	signals "outboard.dev/outboard/signal/standard"
)

// sections are the headings of a README, in order, below the policy's name.
var sections = []string{"## What it does", "## Example", "## Notes"}

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

// reasonsIn finds the policy.Reason literals in the folder's code.
func reasonsIn(t *testing.T, folder string) []policy.Reason {
	t.Helper()
	var reasons []policy.Reason
	for _, file := range sources(t, folder, false) {
		reasons = append(reasons, reasonsOf(t, file)...)
	}
	return reasons
}

// reasonsOf finds the policy.Reason literals in the file whose codes do not follow from a configuration.
func reasonsOf(t *testing.T, file *ast.File) []policy.Reason {
	t.Helper()
	var reasons []policy.Reason
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
				t.Errorf("a Reason in %s has fields without names", file.Name.Name)
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
			main := folder + ".go"
			files := map[string]string{
				main:         "the policy and its Cycle",
				"setup.go":   "the configuration, its defaults and its validation",
				"explain.go": "what explains a decision",
				"node.go":    "what the policy reads from a node",
			}
			if len(reasonsIn(t, folder)) > 0 {
				files["reasons.go"] = "the reasons"
			}
			for name, what := range files {
				if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
					t.Errorf("%s must be in %s: %v", what, name, err)
				}
			}
			declared := declarations(t, folder)
			if types := declared["setup.go"]; len(types) == 0 || types[0] != "Config" {
				t.Errorf("setup.go begins with %q: must begin with Config", types)
			}
			setup := slices.DeleteFunc(declared["setup.go"], func(name string) bool {
				return !slices.Contains([]string{"Config", "Type", "Defaults", "New", "Config.validate"}, name)
			})
			if got := strings.TrimSuffix(strings.Join(setup, " "), " Config.validate"); got != "Config Type Defaults New" {
				t.Errorf("setup.go has %s: must have Config, Type, Defaults and New in this order, and then Config.validate, if any", got)
			}
			for name, all := range declared {
				inOrder(t, name, all)
				for _, d := range all {
					_, method, _ := strings.Cut(d, ".")
					if belongs := map[string]string{"Explain": "explain.go", "Prepare": main, "Filter": main}[method]; belongs != "" && name != belongs {
						t.Errorf("%s is in %s: must be in %s", d, name, belongs)
					}
					if d == "Reason" && name != "reasons.go" {
						t.Errorf("a Reason is in %s: must be in reasons.go", name)
					}
				}
			}
			for _, call := range []string{"Run", "RunScenarios", "Benchmark"} {
				if !calls(sources(t, folder, true), "policytest", call) {
					t.Errorf("no test calls policytest.%s", call)
				}
			}
		})
	}
}

// inOrder fails if the methods that all policies have are not in the order in which they are called.
func inOrder(t *testing.T, file string, declared []string) {
	t.Helper()
	order := []string{"Inputs", "Prepare", "Signature", "Filter", "Score", "NormalizeScore"}
	last := map[string]int{} // by receiver
	for _, d := range declared {
		receiver, method, _ := strings.Cut(d, ".")
		i := slices.Index(order, method)
		if i < 0 {
			continue
		}
		if i < last[receiver] {
			t.Errorf("%s: %s is after %s: the order must be %s", file, d, order[last[receiver]], strings.Join(order, ", "))
		}
		last[receiver] = i
	}
}

// declarations returns what each file of the folder declares, in order: functions and types by name, methods as Type.Method, and
// Reason for each reason with a constant code.
func declarations(t *testing.T, folder string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for name, file := range sources(t, folder, false) {
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				all[name] = append(all[name], receiver(d)+d.Name.Name)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if kind, ok := spec.(*ast.TypeSpec); ok {
						all[name] = append(all[name], kind.Name.Name)
					}
				}
			}
		}
		for range reasonsOf(t, file) {
			all[name] = append(all[name], "Reason")
		}
	}
	return all
}

// receiver returns the type of a method's receiver with a dot, or "" for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	kind := f.Recv.List[0].Type
	if pointer, ok := kind.(*ast.StarExpr); ok {
		kind = pointer.X
	}
	return kind.(*ast.Ident).Name + "."
}

// calls reports whether a file calls the function of the package.
func calls(files map[string]*ast.File, pkg, function string) bool {
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
		stop := errors.New("only looking")
		if _, err := kind.New(func(into any) error {
			if v := reflect.TypeOf(into); v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
				t.Errorf("New decodes into a %T: must be a pointer to a struct", into)
			}
			return stop
		}); err != stop {
			t.Errorf("New returned the error %v: must return that of decode as it is", err)
		}
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

// sources parses the Go files of the folder, either its tests or the others, by name.
func sources(t *testing.T, folder string, tests bool) map[string]*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") != tests {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(name)] = file
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
