package project

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// forbidden are functions whose time or memory is not proportional to the text that they read, or that read files that it names, with the
// only functions that use them. A MustParse or MustCompile of a literal is no use.
var forbidden = map[string][]string{
	"k8s.io/apimachinery/pkg/api/resource.ParseQuantity": {"policy/fields: ParseQuantity"},
	"k8s.io/apimachinery/pkg/api/resource.MustParse":     nil,
	"regexp.Compile":      nil,
	"regexp.CompilePOSIX": nil,
	"regexp.MustCompile":  nil,
	"regexp.MatchString":  nil,
	"regexp/syntax.Parse": nil,
	"time.LoadLocation":   nil,
	"math/big.NewInt":     nil,
	"math/big.NewFloat":   nil,
	"math/big.ParseFloat": nil,
}

// parses are functions that read the texts of pods, nodes, callers and sources.
var parses = []string{
	"strconv.ParseFloat", "strconv.ParseInt", "strconv.ParseUint", "strconv.Atoi", "time.Parse", "time.ParseDuration", "net/url.Parse", "net/url.ParseQuery",
	"encoding/json.Unmarshal", "encoding/json.NewDecoder", "encoding/csv.NewReader", "sigs.k8s.io/json.UnmarshalStrict", "sigs.k8s.io/yaml.Unmarshal",
	"sigs.k8s.io/yaml.UnmarshalStrict", "sigs.k8s.io/yaml.YAMLToJSONStrict", "go.yaml.in/yaml/v3.Unmarshal", "go.yaml.in/yaml/v3.NewDecoder",
}

// readers are the functions that use parses, with the limit of what they read. test/bounds runs those that pods, nodes and sources reach, with
// hostile texts.
var readers = map[string]string{
	"internal/ledger/audit: gpuShares":                  "a pod or node, 1.5 MiB",
	"internal/ledger/audit: gpusIn":                     "a pod or node, 1.5 MiB",
	"internal/ledger/audit: allocation":                 "a pod or node, 1.5 MiB",
	"internal/ledger/audit: auditor.gpuSize":            "a pod or node, 1.5 MiB",
	"internal/ledger/audit: Input.gpusOf":               "a pod or node, 1.5 MiB",
	"policies/cost: parsePrice":                         "a pod or node, 1.5 MiB",
	"policies/devices: devices.count":                   "a pod or node, 1.5 MiB",
	"policies/devices: devices.namedBy":                 "a pod or node, 1.5 MiB",
	"policies/gpumemory: unhealthy":                     "a pod or node, 1.5 MiB",
	"policies/gpumemory: parseIndexes":                  "a pod or node, 1.5 MiB",
	"policies/gpumemory: allocated":                     "a pod or node, 1.5 MiB",
	"policies/gpumemory: gpuMemory.request":             "a pod or node, 1.5 MiB",
	"policies/gpumemory: parseSizes":                    "a pod or node, 1.5 MiB",
	"policies/licenses: licenses.annotated":             "a pod or node, 1.5 MiB",
	"policies/podlimit: parseLimit":                     "a pod or node, 1.5 MiB",
	"policies/gpumemory: gpuMemory.usable":              "a ledger, 1.5 MiB",
	"policies/gpumemory: holdings":                      "a ledger, 1.5 MiB",
	"internal/extender: call.bindingArgs":               "a request: docs/reference/limits.md",
	"internal/extender: decodeObject":                   "a request: docs/reference/limits.md",
	"internal/extender/wire: scanner.integer":           "a request: docs/reference/limits.md",
	"internal/extender/wire: unquote":                   "a request: docs/reference/limits.md",
	"internal/explain: limit":                           "a request: docs/reference/limits.md",
	"internal/ui: QueryOf":                              "a request: docs/reference/limits.md",
	"internal/signals/jsonstream: New":                  "a document or response of a source: its maxBytes, and 64 KiB for each text",
	"internal/signals/source/metricsapi: Source.sample": "a text of a response: 64 KiB",
	"internal/signals/source/metricsapi: problem":       "a document or response of a source: its maxBytes",
	"internal/signals/source/prometheus: pair.sample":   "a text of a response: 64 KiB",
	"signal: ParseNumber":                               "a document or response of a source: its maxBytes",
	"internal/config/strictyaml: decoder.scalar":        "a document of a source or a configuration: strictyaml.MaxBytes",
	"internal/config/strictyaml: decoder.free":          "a document of a source or a configuration: strictyaml.MaxBytes",
	"internal/config/strictyaml: decoder.duration":      "a document of a source or a configuration: strictyaml.MaxBytes",
	"internal/config/strictyaml: encodeJSON":            "a document of a source or a configuration: strictyaml.MaxBytes",
	"internal/config/strictyaml: Parse":                 "a document of a source or a configuration: strictyaml.MaxBytes",
	"internal/config/strictyaml: firstLine":             "a document of a source or a configuration: strictyaml.MaxBytes",
	"internal/config/strictyaml: explain":               "a document of a source or a configuration: strictyaml.MaxBytes",
	"internal/config/strictyaml: step":                  "a document of a source or a configuration: strictyaml.MaxBytes",
	"internal/cluster: withoutQuery":                    "the configuration of Outboard or of kube-scheduler",
	"internal/respond: Read":                            "the configuration of Outboard or of kube-scheduler",
	"internal/signals/httpclient: Config.Validate":      "the configuration of Outboard or of kube-scheduler",
	"internal/signals/httpclient: ValidateURL":          "the configuration of Outboard or of kube-scheduler",
	"policy/fields: parseLimit":                         "the configuration of Outboard or of kube-scheduler",
	"policies/rules: nodeVariables.ResolveName":         "the configuration of Outboard or of kube-scheduler",
	"schedplugin: parseArguments":                       "the configuration of Outboard or of kube-scheduler",
	"internal/signals/source/prometheus: New":           "the configuration of Outboard or of kube-scheduler",
	"internal/signals/source/prometheus: withoutPort":   "the configuration of Outboard or of kube-scheduler",
}

// ofOperator are the packages that only commands use, on the files and servers that their user names, or that only read the configuration.
var ofOperator = []string{
	"app", "internal/certs", "internal/config", "internal/config/manifest", "internal/replicas", "internal/simulate", "internal/wiring/...", "policy/policytest",
}

// Texts of others are parsed in bounded time, and each parser has a limit.
func TestParsersAreBounded(t *testing.T) {
	used, read := map[string]bool{}, map[string]bool{}
	root := filepath.Join("..", "..")
	for _, tree := range []string{"app", "internal", "policies", "policy", "schedplugin", "signal", "snapshot"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				return err
			}
			folder, err := filepath.Rel(root, filepath.Dir(name))
			if err != nil {
				return err
			}
			for _, decl := range file.Decls {
				within := filepath.ToSlash(folder) + ": " + declared(decl)
				for _, call := range callsIn(file, decl) {
					if allowed, ok := forbidden[call]; ok {
						used[call+" in "+within] = true
						if !slices.Contains(allowed, within) {
							t.Errorf("%s uses %s, whose time is not proportional to the text: see policy/fields for quantities, or add the function to forbidden with the reason", within, call)
						}
					}
					if slices.Contains(parses, call) && !matches(filepath.ToSlash(folder), ofOperator...) {
						read[within] = true
						if readers[within] == "" {
							t.Errorf("%s uses %s: add the function to readers with the limit of its text, and a row to test/bounds if pods, nodes or sources reach it", within, call)
						}
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for call, allowed := range forbidden {
		for _, within := range allowed {
			if !used[call+" in "+within] {
				t.Errorf("forbidden has a use that does not exist any more: %s in %s", call, within)
			}
		}
	}
	for within := range readers {
		if !read[within] {
			t.Errorf("readers has a function that does not parse any more: %s", within)
		}
	}
}

// callsIn returns the functions of imported packages that a declaration uses, by import path, except with a literal as the only argument.
func callsIn(file *ast.File, decl ast.Decl) (calls []string) {
	imported := map[string]string{}
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		name := path[strings.LastIndexByte(path, '/')+1:]
		if name == "v3" {
			name = "yaml"
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imported[name] = path
	}
	constants, literal := constantsIn(file), map[ast.Expr]bool{}
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			literal[n.Fun] = len(n.Args) == 1 && isLiteral(n.Args[0], constants)
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok && imported[of.Name] != "" && !literal[n] {
				calls = append(calls, imported[of.Name]+"."+n.Sel.Name)
			}
		}
		return true
	})
	return calls
}

// constantsIn returns the names of the constants of a file.
func constantsIn(file *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, decl := range file.Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for _, spec := range d.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					names[name.Name] = true
				}
			}
		}
	}
	return names
}

// isLiteral reports whether an expression consists of literals and names of constants. An exported name is taken for one.
func isLiteral(e ast.Expr, constants map[string]bool) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.BinaryExpr:
		return isLiteral(e.X, constants) && isLiteral(e.Y, constants)
	case *ast.Ident:
		return ast.IsExported(e.Name) || constants[e.Name]
	}
	return false
}

// declared returns the name of a function or method, or of the first variable or type of a declaration.
func declared(decl ast.Decl) string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		receiver := d.Recv.List[0].Type
		if pointer, ok := receiver.(*ast.StarExpr); ok {
			receiver = pointer.X
		}
		if generic, ok := receiver.(*ast.IndexExpr); ok {
			receiver = generic.X
		}
		if name, ok := receiver.(*ast.Ident); ok {
			return name.Name + "." + d.Name.Name
		}
		return d.Name.Name
	case *ast.GenDecl:
		switch spec := d.Specs[0].(type) {
		case *ast.ValueSpec:
			return spec.Names[0].Name
		case *ast.TypeSpec:
			return spec.Name.Name
		}
	}
	return "a declaration"
}
