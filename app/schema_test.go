package app

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/config"
)

var update = flag.Bool("update", false, "rewrite descriptions.json, and the expectations in testdata")

const module = "outboard.dev/outboard/"

// comments returns the comments of the structs of a package and of their fields, by descriptionKey.
// A field without a comment shares that of the field above if it names both.
func comments(t *testing.T, pkg string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", strings.TrimPrefix(pkg, module), "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of %s: %v", pkg, err)
	}
	found := map[string]string{}
	add := func(key string, comment *ast.CommentGroup) {
		if text := strings.Join(strings.Fields(comment.Text()), " "); text != "" {
			found[key] = text
		}
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			types, ok := declaration.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range types.Specs {
				named, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				structure, ok := named.Type.(*ast.StructType)
				if !ok {
					continue
				}
				key := pkg + "." + named.Name.Name
				add(key, types.Doc)
				var above *ast.CommentGroup
				for _, field := range structure.Fields.List {
					for _, name := range field.Names {
						if field.Doc != nil {
							above = field.Doc
						}
						if field.Doc != nil || strings.Contains(above.Text(), name.Name) {
							add(key+"."+name.Name, above)
						}
					}
				}
			}
		}
	}
	return found
}

// The descriptions are the current comments of the types, for every field.
func TestDescriptions(t *testing.T) {
	packages := map[string]map[string]string{}
	want := map[string]string{}
	config.Schema(typesOf(nil), func(structure reflect.Type, field string) string {
		pkg := structure.PkgPath()
		if !strings.HasPrefix(pkg, module) {
			return ""
		}
		if packages[pkg] == nil {
			packages[pkg] = comments(t, pkg)
		}
		key := descriptionKey(structure, field)
		if packages[pkg][key] == "" {
			t.Errorf("%s has no comment", key)
		}
		want[key] = packages[pkg][key]
		return ""
	})
	text, err := json.MarshalIndent(want, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("descriptions.json", append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	var got map[string]string
	if err := json.Unmarshal(descriptions, &got); err != nil {
		t.Fatal(err)
	}
	keys := maps.Clone(want)
	maps.Copy(keys, got)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if got[key] != want[key] {
			t.Errorf("%s: descriptions.json has %q, and the comment is %q: make generate", key, got[key], want[key])
		}
	}
}
