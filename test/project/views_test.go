package project

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// sources are the packages that make Views. All others read what the latest View has.
var sources = []string{"snapshot", "internal/cluster", "internal/simulate", "policy/policytest"}

// placements are the only uses, outside of sources, of what puts a pod on a node: no other package holds pods between the decision and the
// watch, because nobody could count them.
var placements = []string{
	// Nominated pods of the View, on a copy of their node.
	"internal/engine: Engine.nominations uses Node.With",
	"internal/engine: Engine.plan uses Node.With",
	"internal/engine: nominations.counting uses Node.With",
	// Copies of the View with fewer pods, for what would fit then.
	"internal/whatif: search.fitsWithoutHolders uses View.WithNodes",
	// Nodes that are not in the View, without pods.
	"internal/extender: requestNodes.decode uses NewNode",
	"schedplugin: plugin.fitsNewNode uses NewNode",
	// The pods of kube-scheduler's NodeInfo.
	"schedplugin: nodeOf uses NewNode",
	"schedplugin: withPodsOf uses Node.With",
	// Without a cluster, a View has signals only.
	"internal/service: signalViews has a Builder",
}

// puts are the functions and methods of package snapshot that put a pod on a node.
var puts = []string{"NewNode", "Node.With", "View.WithNodes", "Builder.SetPod", "Builder.AssumePod", "Builder.Nominate"}

// A pod counts on a node before the API server shows it there because the View has it, and for no other reason: what reads Views adds no
// pods of its own to them.
func TestOnlyViewsHavePodsBeforeTheWatchShowsThem(t *testing.T) {
	var readers []string
	for _, p := range listed(t) {
		own := strings.TrimPrefix(p.ImportPath, module+"/")
		if matches(own, "internal/...", "schedplugin", "app", "policy/...", "policies/...", "signal/...") && !matches(own, sources...) {
			readers = append(readers, p.ImportPath)
		}
	}
	mode := packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo
	loaded, err := packages.Load(&packages.Config{Mode: mode, Context: t.Context()}, readers...)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, p := range loaded {
		for _, e := range p.Errors {
			t.Fatal(e)
		}
		for _, file := range p.Syntax {
			for _, decl := range file.Decls {
				for _, use := range placementsIn(decl, p.TypesInfo) {
					found[strings.TrimPrefix(p.PkgPath, module+"/")+": "+use] = true
				}
			}
		}
	}
	for use := range found {
		if !slices.Contains(placements, use) {
			t.Errorf("%s: a pod between decision and watch is in the View of internal/cluster (assume.go), and in no other place", use)
		}
	}
	for _, use := range placements {
		if !found[use] {
			t.Errorf("the list of placements has a use that does not exist any more: %s", use)
		}
	}
}

// placementsIn returns how a declaration can put pods on nodes of package snapshot.
func placementsIn(decl ast.Decl, info *types.Info) (uses []string) {
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if f, ok := info.Uses[n].(*types.Func); ok && inSnapshot(f) && slices.Contains(puts, within(f)) {
				uses = append(uses, nameOf(decl, info)+" uses "+within(f))
			}
		case *ast.CompositeLit:
			for _, name := range []string{"Node", "View", "Nomination"} {
				if isSnapshot(info.TypeOf(n), name) {
					uses = append(uses, fmt.Sprintf("%s makes a %s", nameOf(decl, info), name))
				}
			}
		case *ast.Field:
			if isSnapshot(info.TypeOf(n.Type), "Builder") {
				uses = append(uses, nameOf(decl, info)+" has a Builder")
			}
		}
		return true
	})
	return uses
}

func inSnapshot(o types.Object) bool { return o.Pkg() != nil && o.Pkg().Path() == module+"/snapshot" }

func isSnapshot(t types.Type, name string) bool {
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	named, ok := t.(*types.Named)
	return ok && named.Obj().Name() == name && inSnapshot(named.Obj())
}

// nameOf returns the name of the function, method or first type of a declaration.
func nameOf(decl ast.Decl, info *types.Info) string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		return within(info.Defs[d.Name].(*types.Func))
	case *ast.GenDecl:
		if spec, ok := d.Specs[0].(*ast.TypeSpec); ok {
			return spec.Name.Name
		}
	}
	return "a declaration"
}

// within returns the name of a function, with the type of its receiver.
func within(f *types.Func) string {
	receiver := f.Signature().Recv()
	if receiver == nil {
		return f.Name()
	}
	t := receiver.Type()
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	if named, ok := t.(*types.Named); ok {
		return named.Obj().Name() + "." + f.Name()
	}
	return f.Name() // of an interface
}
