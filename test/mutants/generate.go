package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mutatedPackage is a package with all its mutants.
type mutatedPackage struct {
	dir     string            // from the root of the module
	files   map[string][]byte // the text of each file with all its mutants, by the name from the root
	mutants []*mutant
}

// mutant is one change of one place.
type mutant struct {
	number int
	// name is the file, the function, the line without its indentation and what is changed to what, with a number if that is not unique. It
	// stays the same when other lines change.
	name string
}

// listed is a package as go list prints it.
type listed struct {
	ImportPath, Dir, Export, Name string
	GoFiles                       []string
	DepOnly                       bool
}

// load returns the packages with their mutants.
func load(ctx context.Context, patterns []string) ([]*mutatedPackage, error) {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-export", "-json=ImportPath,Dir,Export,Name,GoFiles,DepOnly"}, patterns...)...)
	list.Stderr = os.Stderr
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	exports := map[string]string{}
	var packages []listed
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if exports[p.ImportPath] = p.Export; !p.DepOnly {
			packages = append(packages, p)
		}
	}
	files := token.NewFileSet()
	imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var all []*mutatedPackage
	for _, p := range packages {
		dir := strings.TrimPrefix(p.ImportPath, module+"/")
		texts := map[string][]byte{}
		for _, name := range p.GoFiles {
			if texts[filepath.Join(dir, name)], err = os.ReadFile(filepath.Join(p.Dir, name)); err != nil {
				return nil, err
			}
		}
		mutated, err := generate(files, imports, dir, p.Name, texts)
		if err != nil {
			return nil, err
		}
		all = append(all, mutated)
	}
	return all, nil
}

// generate returns the package in the folder with all its mutants.
func generate(files *token.FileSet, imports types.Importer, dir, name string, texts map[string][]byte) (*mutatedPackage, error) {
	p := &mutatedPackage{dir: dir, files: map[string][]byte{filepath.Join(dir, switchFile): fmt.Appendf(nil, switchText, name, environment)}}
	var parsed []*ast.File
	var names []string
	for file := range texts {
		names = append(names, file)
	}
	slices.Sort(names)
	for _, file := range names {
		tree, err := parser.ParseFile(files, file, texts[file], parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, tree)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{Importer: imports}
	if _, err := config.Check(module+"/"+dir, files, parsed, info); err != nil {
		return nil, err
	}
	taken := map[string]int{}
	for i, tree := range parsed {
		g := generator{files: files, info: info, tree: tree, text: texts[names[i]], name: names[i], out: p, taken: taken}
		p.files[names[i]] = g.mutate()
	}
	return p, nil
}

// generator makes the mutants of one file.
type generator struct {
	files    *token.FileSet
	info     *types.Info
	tree     *ast.File
	text     []byte
	name     string
	function string // the one that is being mutated
	out      *mutatedPackage
	taken    map[string]int // how many mutants have the name
}

// change is what replaces a node: the mutants of the place, and how to write them around the text of the node, which has the mutants inside
// of it.
type change struct {
	node ast.Node
	wrap func(inner string) string
}

// mutate returns the text of the file with all mutants.
func (g *generator) mutate() []byte {
	var changes []change
	for _, declaration := range g.tree.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		g.function = f.Name.Name
		ast.Inspect(f.Body, func(n ast.Node) bool {
			var c *change
			switch n := n.(type) {
			case *ast.BinaryExpr:
				c = g.binary(n)
			case *ast.BlockStmt:
				changes = append(changes, g.statements(n.List)...)
			case *ast.CaseClause:
				changes = append(changes, g.statements(n.Body)...)
			case *ast.CommClause:
				changes = append(changes, g.statements(n.Body)...)
			}
			if c != nil {
				changes = append(changes, *c)
			}
			return true
		})
	}
	// Outer nodes come before those in them.
	slices.SortStableFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.node.Pos(), b.node.Pos()), cmp.Compare(b.node.End(), a.node.End()))
	})
	text, _ := g.render(g.tree.FileStart, g.tree.FileEnd, changes)
	return []byte(text)
}

// render returns the text between the positions with the changes that are there, and the changes that are not.
func (g *generator) render(from, to token.Pos, changes []change) (string, []change) {
	var text strings.Builder
	for len(changes) > 0 && changes[0].node.End() <= to {
		c := changes[0]
		text.WriteString(g.between(from, c.node.Pos()))
		var inner string
		inner, changes = g.render(c.node.Pos(), c.node.End(), changes[1:])
		text.WriteString(c.wrap(inner))
		from = c.node.End()
	}
	text.WriteString(g.between(from, to))
	return text.String(), changes
}

func (g *generator) between(from, to token.Pos) string {
	file := g.files.File(from)
	return string(g.text[file.Offset(from):file.Offset(to)])
}

func (g *generator) source(n ast.Node) string { return g.between(n.Pos(), n.End()) }

// add adds a mutant of the place, and returns its number.
func (g *generator) add(at token.Pos, what string) string {
	position := g.files.Position(at)
	line, _, _ := strings.Cut(string(g.text[position.Offset-position.Column+1:]), "\n")
	name := fmt.Sprintf("%s: %s: `%s`: %s", g.name, g.function, strings.TrimSpace(line), what)
	g.taken[name]++
	if n := g.taken[name]; n > 1 {
		name += fmt.Sprintf(" (%d)", n)
	}
	m := &mutant{len(g.out.mutants) + 1, name}
	g.out.mutants = append(g.out.mutants, m)
	return strconv.Itoa(m.number)
}

// negations and neighbors are the operators that a mutant has instead of a comparison; opposites those instead of an arithmetic or logical
// operator.
var (
	negations = map[token.Token]token.Token{
		token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.LEQ: token.GTR, token.GTR: token.LEQ, token.GEQ: token.LSS,
	}
	neighbors = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}
	opposites = map[token.Token]token.Token{
		token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
		token.LAND: token.LOR, token.LOR: token.LAND,
		token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN, token.MUL_ASSIGN: token.QUO_ASSIGN, token.QUO_ASSIGN: token.MUL_ASSIGN,
	}
)

// binary returns the mutants of an expression that is no constant; nil if there are none.
func (g *generator) binary(e *ast.BinaryExpr) *change {
	value := g.info.Types[e]
	if value.Value != nil {
		return nil
	}
	result := ""
	switch t := value.Type.(type) {
	case *types.Basic:
		if t.Info()&types.IsNumeric == 0 && t.Info()&types.IsBoolean == 0 {
			return nil
		}
		result = types.Default(t).String()
	default:
		result = g.typeName(t)
	}
	if result == "" {
		return nil
	}
	var cases []string
	for _, operators := range []map[token.Token]token.Token{negations, neighbors, opposites} {
		if op, ok := operators[e.Op]; ok {
			number := g.add(e.OpPos, fmt.Sprintf("%s becomes %s", e.Op, op))
			cases = append(cases, fmt.Sprintf("case %s: return %s %s %s", number, g.source(e.X), op, g.source(e.Y)))
		}
	}
	if cases == nil {
		return nil
	}
	return &change{e, func(inner string) string {
		return fmt.Sprintf("func() %s { switch theMutant { %s }; return %s }()", result, strings.Join(cases, "; "), inner)
	}}
}

// typeName returns the name of a numeric type in this file; "" if it is none, or has no name here.
func (g *generator) typeName(t types.Type) string {
	named, ok := t.(*types.Named)
	if !ok {
		return ""
	}
	if basic, ok := named.Underlying().(*types.Basic); !ok || basic.Info()&types.IsNumeric == 0 {
		return ""
	}
	path := named.Obj().Pkg().Path()
	if path == module+"/"+g.out.dir {
		return named.Obj().Name()
	}
	for _, spec := range g.tree.Imports {
		if spec.Name == nil && strings.Trim(spec.Path.Value, `"`) == path {
			return named.Obj().Pkg().Name() + "." + named.Obj().Name()
		}
	}
	return ""
}

// statements returns the mutants that are without one of the statements, or do the opposite.
func (g *generator) statements(list []ast.Stmt) []change {
	var changes []change
	for _, s := range list {
		source, opposite := g.source(s), ""
		switch s := s.(type) {
		case *ast.ExprStmt:
			if g.unobservable(s) {
				continue
			}
		case *ast.IncDecStmt:
			opposite = g.source(s.X) + map[token.Token]string{token.INC: "--", token.DEC: "++"}[s.Tok]
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
			if op, ok := opposites[s.Tok]; ok && g.numeric(s.Lhs[0]) {
				opposite = fmt.Sprintf("%s %s %s", g.source(s.Lhs[0]), op, g.source(s.Rhs[0]))
			}
		default:
			continue
		}
		first, _, _ := strings.Cut(source, "\n")
		removed := g.add(s.Pos(), "removed: "+first)
		without := ""
		if opposite != "" {
			first, _, _ := strings.Cut(opposite, "\n")
			without = fmt.Sprintf("if theMutant == %s { %s } else ", g.add(s.Pos(), "becomes "+first), opposite)
		}
		changes = append(changes, change{s, func(inner string) string {
			return fmt.Sprintf("%sif theMutant != %s { %s }", without, removed, inner)
		}})
	}
	return changes
}

func (g *generator) numeric(e ast.Expr) bool {
	basic, ok := g.info.Types[e].Type.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsNumeric != 0
}

// unobservable reports whether no test can notice that a call is missing, or only a race detector: locks, logs, and panics, without which the
// function may not compile.
func (g *generator) unobservable(s *ast.ExprStmt) bool {
	call, ok := s.X.(*ast.CallExpr)
	if !ok {
		return true
	}
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name == "panic"
	case *ast.SelectorExpr:
		return slices.Contains([]string{"Lock", "Unlock", "RLock", "RUnlock", "Debug", "Info", "Warn", "Error", "Log"}, f.Sel.Name)
	}
	return false
}

// sample returns that many of the mutants, chosen by the seed. A change of other code does not change which are chosen, except at the limit.
func sample(all []*mutant, n int, seed uint64) []*mutant {
	rank := func(m *mutant) uint64 {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d %s", seed, m.name)
		x := h.Sum64() // similar names have similar sums
		x ^= x >> 31
		x *= 0x9e3779b97f4a7c15
		return x ^ x>>29
	}
	chosen := slices.SortedFunc(slices.Values(all), func(a, b *mutant) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.name, b.name)) })
	return chosen[:min(n, len(chosen))]
}
