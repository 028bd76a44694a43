package main

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// declaredMutant is a change of a function that was written by hand.
type declaredMutant struct {
	file     string // from the root of the module
	old, new string // the text, which the file has once, and what replaces it
	test     string // the folder of a package and the name of the test that kills the mutant, and after a / that of a subtest
}

func (m *declaredMutant) name() string { return fmt.Sprintf("%s: %q becomes %q", m.file, m.old, m.new) }

// judgedBy returns the folder of the package of the test, and the pattern that selects the test.
func (m *declaredMutant) judgedBy() (dir, pattern string) {
	dir, test, _ := strings.Cut(m.test, " ")
	return dir, "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
}

// search is the folder of the tests that also judge a mutant that its own test does not kill.
const search = "test/search"

// declared runs the mutants in table.go. A mutant that its test does not kill survives; the search only tells whether it would.
func (r *runner) declared(ctx context.Context) error {
	programs := map[string]*program{}
	for i := range claimProtocol {
		m := &claimProtocol[i]
		dir, pattern := m.judgedBy()
		code := []string{filepath.Dir(m.file)}
		if dir == search {
			code = []string{"internal", "snapshot", "policy", "policies"} // what surrounds the changed step decides, too
		}
		state, err := stateOf(append(code, dir)...)
		if err != nil {
			return err
		}
		err = r.judge(m.name(), state, func() (string, error) {
			if programs[dir] == nil {
				p, err := r.buildDeclared(ctx, dir, func(m *declaredMutant) bool { other, _ := m.judgedBy(); return other == dir })
				if err != nil {
					return "", err
				}
				programs[dir] = p
			}
			killer, err := programs[dir].run(ctx, i+1, pattern)
			if killer != "" || err != nil || dir == search {
				return killer, err
			}
			p, err := r.buildDeclared(ctx, search, func(other *declaredMutant) bool { return other == m })
			if err != nil {
				return "", err
			}
			killer, err = p.run(ctx, i+1, ".")
			fmt.Fprintf(r.out, "%s:%d: %s does not notice this; of the search: %q\n", m.file, m.line("."), m.test, killer)
			return "", err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// buildDeclared compiles the tests in the folder with the mutants. The fewer there are, the more packages are compiled already.
func (r *runner) buildDeclared(ctx context.Context, dir string, has func(*declaredMutant) bool) (*program, error) {
	changed, err := dispatched(claimProtocol, ".", has)
	if err != nil {
		return nil, err
	}
	return r.build(ctx, changed, dir)
}

// position returns where the file has the text.
func (m *declaredMutant) position(text []byte) (int, error) {
	if n := bytes.Count(text, []byte(m.old)); n != 1 {
		return 0, fmt.Errorf("%s has %q %d times, want it once", m.file, m.old, n)
	}
	return bytes.Index(text, []byte(m.old)), nil
}

// line returns the number of the line that is changed.
func (m *declaredMutant) line(root string) int {
	text, _ := os.ReadFile(filepath.Join(root, m.file))
	before, _, _ := bytes.Cut(text, []byte(m.old))
	return bytes.Count(before, []byte("\n")) + 1
}

// dispatched returns the text of each file with those of the mutants that has reports, by the name of the file. The number of a mutant is its index plus 1. A
// function with mutants calls a changed copy of itself if that mutant is selected.
func dispatched(mutants []declaredMutant, root string, has func(*declaredMutant) bool) (map[string][]byte, error) {
	byFile := map[string][]int{}
	for i := range mutants {
		if !has(&mutants[i]) {
			continue
		}
		byFile[mutants[i].file] = append(byFile[mutants[i].file], i)
	}
	replaced := map[string][]byte{}
	for file, indices := range byFile {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		name := filepath.Join(filepath.Dir(file), switchFile)
		replaced[name] = fmt.Appendf(nil, switchText, tree.Name.Name, environment)
		cases, copies := map[*ast.FuncDecl]string{}, ""
		for _, i := range indices {
			m := &mutants[i]
			at, err := m.position(text)
			if err != nil {
				return nil, err
			}
			f := functionAt(tree, at)
			if f == nil {
				return nil, fmt.Errorf("%s: %q is in no function", file, m.old)
			}
			copied := fmt.Sprintf("%s_mutant%d", f.Name.Name, i+1)
			call, err := callOf(f, copied)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			cases[f] += fmt.Sprintf("case %d: %s; ", i+1, call)
			copies += "\n" + string(text[f.Pos()-1:f.Name.Pos()-1]) + copied + string(text[f.Name.End()-1:at]) + m.new + string(text[at+len(m.old):f.End()-1]) + "\n"
		}
		replaced[file] = append(withCases(text, cases), copies...)
	}
	return replaced, nil
}

// withCases returns the text of the file, in which each function first does what the cases say.
func withCases(text []byte, cases map[*ast.FuncDecl]string) []byte {
	var next []byte
	from := 0
	functions := make([]*ast.FuncDecl, 0, len(cases))
	for f := range cases {
		functions = append(functions, f)
	}
	slices.SortFunc(functions, func(a, b *ast.FuncDecl) int { return int(a.Pos() - b.Pos()) })
	for _, f := range functions {
		body := int(f.Body.Lbrace) // the file set has one file: positions begin with 1
		next = append(append(next, text[from:body]...), " switch theMutant { "+cases[f]+"}; "...)
		from = body
	}
	return append(next, text[from:]...)
}

// functionAt returns the function that has the offset; nil if there is none.
func functionAt(tree *ast.File, offset int) *ast.FuncDecl {
	for _, d := range tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && int(f.Pos()) <= offset+1 && offset+1 < int(f.End()) {
			return f
		}
	}
	return nil
}

// callOf returns the statement that calls the copy of the function with its own arguments, and returns.
func callOf(f *ast.FuncDecl, copied string) (string, error) {
	if f.Recv != nil {
		if len(f.Recv.List[0].Names) == 0 {
			return "", fmt.Errorf("the receiver of %s has no name", f.Name.Name)
		}
		copied = f.Recv.List[0].Names[0].Name + "." + copied
	}
	var arguments []string
	for _, field := range f.Type.Params.List {
		if len(field.Names) == 0 {
			return "", fmt.Errorf("a parameter of %s has no name", f.Name.Name)
		}
		for _, name := range field.Names {
			argument := name.Name
			if _, ok := field.Type.(*ast.Ellipsis); ok {
				argument += "..."
			}
			arguments = append(arguments, argument)
		}
	}
	call := copied + "(" + strings.Join(arguments, ", ") + ")"
	if f.Type.Results == nil {
		return call + "; return", nil
	}
	return "return " + call, nil
}
