package docs

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	policies "outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/policy"
)

const reasonsPath = "docs/reference/reasons.md"

// reasonRows returns the rows of the reasons in a section of the page.
func reasonRows(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	_, text, _ := strings.Cut(read(t, reasonsPath), "\n## "+heading+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for line := range strings.Lines(text) {
		if row := cells(line); len(row) == 4 && row[0] != "Code" && !strings.HasPrefix(row[0], "---") {
			rows = append(rows, row)
		}
	}
	return rows
}

// cells returns the cells of a row of a table, and none of another line.
func cells(line string) []string {
	inner, ok := strings.CutPrefix(strings.TrimSpace(line), "|")
	if !ok {
		return nil
	}
	all := strings.Split(strings.TrimSuffix(inner, "|"), "|")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// The page has a row for each reason of a policy, and for no other.
func TestReasonsOfPoliciesAreOnThePage(t *testing.T) {
	checked := 0
	for _, kind := range policies.Types() {
		want := map[string]string{}
		for _, r := range reasonsIn(t, filepath.Join(Root, "policies", strings.ToLower(kind.Name))) {
			if want["`"+r.Code+"`"] != "" {
				t.Errorf("%s: two reasons have the code %s", kind.Name, r.Code)
			}
			want["`"+r.Code+"`"] = r.Text
			checked++
		}
		for _, row := range reasonRows(t, kind.Name) {
			if strings.HasPrefix(row[0], "`") && want[row[0]] != row[1] {
				t.Errorf("%s: the page has %s with the text %q, and the code %q", kind.Name, row[0], row[1], want[row[0]])
			}
			delete(want, row[0])
		}
		for code := range want {
			t.Errorf("%s: the page has no row for %s", kind.Name, code)
		}
	}
	if checked < 30 {
		t.Errorf("only %d reasons are in the code", checked)
	}
}

var rejected = regexp.MustCompile(`(?m)^\S+ +([A-Z][A-Za-z]+)(!?) .*$`)

// In the scenarios of a policy, evicting pods can help on nodes rejected with a reason exactly if
// the page says so.
func TestEvictingPodsAsInScenarios(t *testing.T) {
	archives, err := filepath.Glob(filepath.Join(Root, "policies", "*", "testdata", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	sectionOf := map[string]string{}
	for _, kind := range policies.Types() {
		sectionOf[strings.ToLower(kind.Name)] = kind.Name
	}
	seen := map[string]bool{}
	for _, name := range archives {
		rows := reasonRows(t, sectionOf[filepath.Base(filepath.Dir(filepath.Dir(name)))])
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "want.txt" })
		if i < 0 || !bytes.HasPrefix(archive.Files[i].Data, []byte("node ")) {
			continue
		}
		for _, m := range rejected.FindAllSubmatch(archive.Files[i].Data, -1) {
			row := slices.IndexFunc(rows, func(row []string) bool { return row[0] == "`"+string(m[1])+"`" })
			if row < 0 {
				continue // a rule of a configuration
			}
			helps := rows[row][2]
			seen[helps] = true
			if unresolvable := len(m[2]) > 0; unresolvable && helps == "can help" || !unresolvable && helps == "no" {
				t.Errorf("%s: %q, but on the page, evicting pods: %s", name, m[0], helps)
			}
		}
	}
	if !seen["no"] || !seen["can help"] {
		t.Errorf("the scenarios have only reasons for which evicting pods is: %v", seen)
	}
}

// The reasons of every profile are on the page.
func TestReasonsOfEveryProfileAreOnThePage(t *testing.T) {
	page := read(t, reasonsPath)
	found := append(reasonsIn(t, filepath.Join(Root, "internal", "engine")), reasonsIn(t, filepath.Join(Root, "schedplugin"))...)
	for _, r := range found {
		if row := "| `" + r.Code + "` | " + r.Text + " |"; !strings.Contains(page, row) {
			t.Errorf("the page does not have %s", row)
		}
	}
	if len(found) < 2 {
		t.Errorf("only %d reasons are in the code", len(found))
	}
}

// reasonsIn returns the reasons in the code of a folder whose codes do not follow from a configuration.
func reasonsIn(t *testing.T, folder string) []policy.Reason {
	t.Helper()
	var found []policy.Reason
	for _, file := range parseFolder(t, folder) {
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok || literal.Type == nil || nameOf(literal.Type) != "Reason" {
				return true
			}
			var r policy.Reason
			for _, element := range literal.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					value, _ := text(pair.Value)
					switch nameOf(pair.Key) {
					case "Code":
						r.Code = value
					case "Text":
						r.Text = value
					case "Unit":
						r.Unit = value
					}
				}
			}
			if r.Code != "" {
				found = append(found, r)
			}
			return true
		})
	}
	return found
}

// parseFolder returns the Go files in a folder, without tests.
func parseFolder(t *testing.T, folder string) []*ast.File {
	t.Helper()
	return parseFiles(t, filepath.Join(folder, "*.go"))
}

// parseFiles returns the Go files of a pattern, without tests.
func parseFiles(t *testing.T, pattern string) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
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
