package project

import (
	"bytes"
	"flag"
	"fmt"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

var update = flag.Bool("update", false, "write api.txt")

// private are the folders whose packages other modules cannot import, or are not meant to.
var private = []string{"cmd/...", "deploy/...", "docs/...", "examples/...", "internal/...", "test/..."}

// api.txt has a line for each identifier that other modules can use, so that a review sees what changes for them.
func TestAPI(t *testing.T) {
	const file = "api.txt"
	got := []byte(strings.Join(identifiers(t), "\n") + "\n")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		before, after := strings.Split(string(want), "\n"), strings.Split(string(got), "\n")
		for _, line := range before {
			if !slices.Contains(after, line) {
				t.Errorf("removed: %s", line)
			}
		}
		for _, line := range after {
			if !slices.Contains(before, line) {
				t.Errorf("added: %s", line)
			}
		}
		t.Error("the public API has changed: if that is intended, run make generate and commit test/project/api.txt")
	}
}

// identifiers returns a line for each exported identifier of the public packages: constants, variables, functions, types, their fields
// and their methods.
func identifiers(t *testing.T) []string {
	t.Helper()
	var public []string
	for _, p := range listed(t) {
		if p.Name != "main" && !matches(strings.TrimPrefix(p.ImportPath, module+"/"), private...) {
			public = append(public, p.ImportPath)
		}
	}
	loaded, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedTypes, Context: t.Context()}, public...)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, p := range loaded {
		for _, e := range p.Errors {
			t.Fatal(e)
		}
		path := strings.TrimPrefix(p.PkgPath, module+"/")
		scope := p.Types.Scope()
		for _, name := range scope.Names() {
			if object := scope.Lookup(name); object.Exported() {
				for _, line := range describe(object) {
					lines = append(lines, path+": "+line)
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// describe returns the lines of an exported object of a package.
func describe(object types.Object) []string {
	within := types.RelativeTo(object.Pkg())
	text := func(o types.Object) string { return types.ObjectString(o, within) }
	name, ok := object.(*types.TypeName)
	if !ok {
		return []string{text(object)}
	}
	lines := []string{"type " + name.Name()}
	named, ok := name.Type().(*types.Named)
	if !ok || name.IsAlias() {
		return []string{text(object)}
	}
	switch underlying := named.Underlying().(type) {
	case *types.Struct:
		for field := range underlying.Fields() {
			if field.Exported() {
				lines = append(lines, fmt.Sprintf("type %s, %s", name.Name(), text(field)))
			}
		}
	case *types.Interface: // its methods are in the method set
	default:
		lines = []string{fmt.Sprintf("type %s %s", name.Name(), types.TypeString(underlying, within))}
	}
	methods := types.NewMethodSet(types.NewPointer(named))
	if types.IsInterface(named) {
		methods = types.NewMethodSet(named)
	}
	for method := range methods.Methods() {
		if method.Obj().Exported() {
			lines = append(lines, fmt.Sprintf("type %s, %s", name.Name(), text(method.Obj())))
		}
	}
	return lines
}
