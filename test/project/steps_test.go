package project

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// pure are the files with the states and steps of the protocols between replicas, kube-scheduler and the API server.
var pure = []string{
	"internal/binder/protocol.go", "internal/binder/waiting.go", "internal/cluster/assumption/assumption.go", "internal/cluster/sending.go",
	"internal/ledger/apply.go", "internal/ledger/examine.go", "internal/ledger/queue.go", "internal/ledger/write.go", "snapshot/nominated.go",
}

// impure are packages with which a step could depend on something other than its arguments.
var impure = []string{"context", "crypto/rand", "io", "log/slog", "math/rand/v2", "net/http", "os", "sync", "sync/atomic", "k8s.io/client-go/..."}

// Steps depend on their arguments only, so that a test can play them in any order, and a step that is never taken has no effect: they use
// no client, clock, lock or random number, and start no goroutine.
func TestProtocolsArePureSteps(t *testing.T) {
	for _, name := range pure {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			if path, _ := strconv.Unquote(spec.Path.Value); matches(path, impure...) {
				t.Errorf("%s imports %s", name, path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SendStmt, *ast.SelectStmt:
				t.Errorf("%s has a goroutine or sends to a channel", name)
			case *ast.SelectorExpr:
				if of, ok := n.X.(*ast.Ident); ok && of.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker"}, n.Sel.Name) {
					t.Errorf("%s uses time.%s", name, n.Sel.Name)
				}
			}
			return true
		})
	}
}
