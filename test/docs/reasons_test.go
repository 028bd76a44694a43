package docs

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
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

// placeholder is a name on the page that stands for a value, or for itself.
var placeholder = regexp.MustCompile(`[A-Z]{2,}|\bN\b|ledgers\.outboard\.dev`)

// Each error on the page that is written by hand is in the code.
func TestErrorsAreInTheCode(t *testing.T) {
	texts := strings.Join(append(textsIn(t, "internal"), textsIn(t, "schedplugin")...), "\n")
	all := errorRows(t)
	for text, shape := range all {
		if !regexp.MustCompile(shape).MatchString(texts) {
			t.Errorf("no text in the code is like %q", text)
		}
	}
	if len(all) < 20 {
		t.Errorf("the page has %d errors", len(all))
	}
}

// errorRows returns the errors on the page with the regular expressions of their texts in the code.
func errorRows(t *testing.T) map[string]string {
	t.Helper()
	_, errors, _ := strings.Cut(read(t, reasonsPath), "\n## Errors")
	all := map[string]string{}
	for line := range strings.Lines(errors) {
		if row := cells(line); len(row) == 2 && row[0] != "Error" && !strings.HasPrefix(row[0], "---") {
			shape := placeholder.ReplaceAllStringFunc(regexp.QuoteMeta(row[0]), func(name string) string { return `(?:` + name + `|"?%[a-z]"?)` })
			all[row[0]] = strings.ReplaceAll(shape, `ledgers\.outboard\.dev`, `%s`)
		}
	}
	return all
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

// callCode is the code whose errors kube-scheduler reports of a pod.
var callCode = []string{
	"internal/extender/*.go", "internal/binder/*.go", "internal/engine/reserve.go",
	"internal/ledger/apply.go", "internal/ledger/queue.go", "internal/ledger/write.go",
	"schedplugin/candidates.go", "schedplugin/reserve.go", "schedplugin/cycle.go", "schedplugin/plugin.go", "schedplugin/queue.go",
}

// notOnThePage has the errors in callCode that are not on the page, by why.
var notOnThePage = map[string][]string{
	"they need nothing unless they persist": {
		"reading pod %s/%s from the API server: %w", "reading pod %s/%s, which has an allocation: %w", "changing pod %s/%s: %w", "reading the request: %w",
		"pod %s cannot run on node %q: %s", "the pod has changed", "pod %s/%s with UID %s does not exist", "pod %s/%s is being deleted",
		"pod %s/%s is being bound to node %q, and that cannot be ended now: %w", "the Binding was withdrawn, and the allocations of the pod were released: %w",
		"%w; its allocations stay for now: %w", "it is unknown whether the allocation was written",
	},
	"they say what to do": {
		"the API server does not serve %s: install the Ledger CRD: kubectl apply --server-side --force-conflicts -f deploy/chart/crds/ledgers.yaml",
		"the request has only node names, and Outboard runs without a cluster: set nodeCacheCapable: false in the scheduler's configuration, or configure a cluster",
	},
	"kube-scheduler sends no such request": {
		"decoding the request: %w", "pod %s has scheduling gates", "the request must have PodName, PodNamespace, PodUID and Node",
		"the request has %d bytes, the limit for a bind call is %d", "%s has %d bytes, the limit is %d", "node %q is in the request twice",
		"decoding node %q: its metadata.name is %q", "a victim on node %q has no UID",
	},
	"they only say where another error occurred": {
		"node %s: %w", "node %s: %w: %w", "%w (%w)", "reading: %w", "%s: %w",
	},
	"they follow decoding the pod, or decoding node NODE": {
		"it has %d bytes of JSON, the limit is %d", "decoding it may take %d bytes of memory, the limit is %d",
		"a resource quantity has a negative exponent of more than %d digits", "a resource quantity has more than %d digits",
	},
	"a policy that causes them is wrong, and the conformance tests find it": {
		"ledger %s: the allocation has no amounts", "ledger %s: the allocation names unit %q, which does not exist", "ledger %s: a second allocation of unit %q",
		"ledger %s: an allocation of %d of unit %q: must be at least 1", "ledger %s: an allocation of %d of unit %q: %d of %d are allocated already",
	},
	"no pod gets them": {
		"asking whether pod %s/%s, which terminates there, is gone: %w",
		"the candidates of a pod are not those of other pods", "a policy depends on more than the node and the pod",
		"the policies were not prepared: %w", "the policies were not prepared: found a %T",
	},
}

// Each error that a call can cause is on the page.
func TestErrorsAreOnThePage(t *testing.T) {
	rows := errorRows(t)
	known := map[string]bool{}
	for _, texts := range notOnThePage {
		for _, text := range texts {
			known[text] = true
		}
	}
	found := 0
	for _, pattern := range callCode {
		for _, text := range errorsIn(t, filepath.Join(Root, filepath.FromSlash(pattern))) {
			found++
			if _, excepted := known[text]; excepted {
				known[text] = false
				continue
			}
			onThePage := false
			for _, shape := range rows {
				onThePage = onThePage || regexp.MustCompile("^(?:"+shape+")").MatchString(text)
			}
			if !onThePage {
				t.Errorf("%s has no row for %q", reasonsPath, text)
			}
		}
	}
	for text, unused := range known {
		if unused {
			t.Errorf("notOnThePage has %q, and the code does not", text)
		}
	}
	if found < 60 {
		t.Errorf("only %d errors are in the code", found)
	}
}

// errorsIn returns the texts of errors, and of statuses of the plugin, in the files of a pattern.
func errorsIn(t *testing.T, pattern string) (texts []string) {
	t.Helper()
	for _, file := range parseFiles(t, pattern) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			at := call.Args[0]
			switch function, _ := call.Fun.(*ast.SelectorExpr); {
			case function == nil:
				return true
			case nameOf(function) == "NewStatus" && len(call.Args) == 2:
				at = call.Args[1]
				if inner, ok := at.(*ast.CallExpr); ok && nameOf(inner.Fun) == "Sprintf" {
					at = inner.Args[0]
				}
			case nameOf(function) != "Errorf" && nameOf(function.X)+"."+nameOf(function) != "errors.New":
				return true
			}
			if value, isText := text(at); isText {
				texts = append(texts, value)
			}
			return true
		})
	}
	return texts
}

// textsIn returns the string literals below a folder of the repository.
func textsIn(t *testing.T, folder string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(Root, folder), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		for _, file := range parseFolder(t, path) {
			ast.Inspect(file, func(n ast.Node) bool {
				if e, ok := n.(ast.Expr); ok {
					if value, isText := text(e); isText {
						all = append(all, value)
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
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
