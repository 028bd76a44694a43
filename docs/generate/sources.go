package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// parseFolder returns the Go files in a folder, without tests.
func parseFolder(folder string) ([]*ast.File, error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	if len(files) == 0 {
		return nil, &os.PathError{Op: "parse", Path: folder, Err: os.ErrNotExist}
	}
	return files, nil
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

// metricFolders are the packages that define metrics.
var metricFolders = []string{
	"app", "internal/callmetrics", "internal/cluster", "internal/ledger", "internal/requeue", "internal/server", "internal/service", "signal",
}

var (
	metricName = regexp.MustCompile(`^outboard_[a-z_]+$`)
	metricKind = regexp.MustCompile(`^(Counter|Gauge|Histogram)(Opts|Value)$`)
)

// metricKinds returns the type of each metric by its name. A metric is named in the options with which it is created, or is the
// first argument of a function that creates it; constant metrics have the type of the values in their package.
func metricKinds(root string) (map[string]string, error) {
	kinds := map[string]string{}
	for _, folder := range metricFolders {
		files, err := parseFolder(filepath.Join(root, folder))
		if err != nil {
			return nil, err
		}
		creators, constants := creatorsIn(files)
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CompositeLit:
					for _, element := range n.Elts {
						if pair, ok := element.(*ast.KeyValueExpr); ok && n.Type != nil {
							addKind(kinds, pair.Value, kindIn(n.Type, "Opts"))
						}
					}
				case *ast.CallExpr:
					if len(n.Args) > 0 {
						addKind(kinds, n.Args[0], cmp.Or(creators[nameOf(n.Fun)], constants))
					}
				}
				return true
			})
		}
	}
	return kinds, nil
}

// addKind adds the type of a metric if the expression is its name.
func addKind(kinds map[string]string, e ast.Expr, kind string) {
	if name, ok := text(e); ok && metricName.MatchString(name) && kind != "" {
		kinds[name] = kind
	}
}

// creatorsIn returns the type of metrics that each function of a package creates, and that of constant metrics.
func creatorsIn(files []*ast.File) (creators map[string]string, constants string) {
	creators = map[string]string{}
	for _, file := range files {
		constants = cmp.Or(constants, kindIn(file, "Value"))
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				creators[n.Name.Name] = kindIn(n, "Opts")
			case *ast.AssignStmt:
				if function, ok := n.Rhs[0].(*ast.FuncLit); ok {
					creators[nameOf(n.Lhs[0])] = kindIn(function, "Opts")
				}
			}
			return true
		})
	}
	return creators, constants
}

// kindIn returns the type of metrics that n names with Opts or Value; "" if there is none, or there are several.
func kindIn(n ast.Node, suffix string) string {
	found := map[string]bool{}
	ast.Inspect(n, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			if m := metricKind.FindStringSubmatch(selector.Sel.Name); m != nil && m[2] == suffix {
				found[strings.ToLower(m[1])] = true
			}
		}
		return true
	})
	if len(found) != 1 {
		return ""
	}
	return slices.Collect(maps.Keys(found))[0]
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
