package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// Each change is still a change of one place in a function, and each test still exists.
func TestDeclaredMutantsApply(t *testing.T) {
	changed, err := dispatched(claimProtocol, root, all)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range changed {
		if _, err := parser.ParseFile(token.NewFileSet(), name, text, 0); err != nil {
			t.Errorf("with all mutants: %v", err)
		}
	}
	tests := map[string]string{} // the text of all tests of a folder
	for i := range claimProtocol {
		dir, test, _ := strings.Cut(claimProtocol[i].test, " ")
		if tests[dir] == "" {
			tests[dir] = testsOf(t, dir)
		}
		if name, _, _ := strings.Cut(test, "/"); !strings.Contains(tests[dir], "\nfunc "+name+"(t *testing.T) {") {
			t.Errorf("%s: there is no test %s in %s", claimProtocol[i].name(), name, dir)
		}
	}
}

// The tests that are skipped count allocations, and do not only have a name like that.
func TestSkippedTestsCountAllocations(t *testing.T) {
	name, found := regexp.MustCompile(skipped), 0
	for _, dir := range []string{"internal/engine", "internal/extender", "internal/cluster", "internal/ledger", "snapshot", "policies/*"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("tests in %s: %v, %v", dir, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllSubmatch(text, -1) {
				if !name.Match(match[1]) {
					continue
				}
				if found++; !strings.Contains(string(text), "AllocsPerRun") {
					t.Errorf("%s in %s is skipped, and nothing there counts allocations", match[1], file)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no test is skipped")
	}
}

func all(*declaredMutant) bool { return true }

func testsOf(t *testing.T, dir string) string {
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("tests in %s: %v, %v", dir, files, err)
	}
	var all strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// Each mutant that may survive has a reason, and the line that it changes still exists.
func TestAcceptedMutants(t *testing.T) {
	accepted, err := readAccepted(acceptedFile)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	for i := range claimProtocol {
		declared[claimProtocol[i].name()] = true
	}
	for name, reason := range accepted {
		if reason == "" {
			t.Errorf("%s: no reason", name)
		}
		if declared[name] {
			continue
		}
		file, rest, _ := strings.Cut(name, ": ")
		function, rest, _ := strings.Cut(rest, ": `")
		line, _, _ := strings.Cut(rest, "`: ")
		if !functionHas(t, file, function, line) {
			t.Errorf("%s: the function does not have this line", name)
		}
	}
}

// functionHas reports whether a function of that name in the file has the line.
func functionHas(t *testing.T, file, function, line string) bool {
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Error(err)
		return false
	}
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == function &&
			strings.Contains(string(text[files.Position(f.Pos()).Offset:files.Position(f.End()).Offset]), line) {
			return true
		}
	}
	return false
}

const example = `package main

import "fmt"

type value float64

func sum(list []value, limit value) (total value) {
	for i, x := range list {
		if x < 0 && list[0] != 3 {
			continue
		}
		total += x * 2
		if total > limit { // too much
			fmt.Println("above", i)
		}
	}
	return total
}

func main() { fmt.Println(sum([]value{1, -1, 0}, 2)) }
`

// One program has all mutants: without one it is what it was, and each changes one place.
func TestGeneratedMutants(t *testing.T) {
	outputs := []struct{ mutant, output string }{
		{"", "2"},
		{"sum: `if x < 0 && list[0] != 3 {`: && becomes ||", "0"},
		{"sum: `if x < 0 && list[0] != 3 {`: < becomes >=", "-2"},
		{"sum: `if x < 0 && list[0] != 3 {`: < becomes <=", "2"},
		{"sum: `if x < 0 && list[0] != 3 {`: != becomes ==", "0"},
		{"sum: `total += x * 2`: removed: total += x * 2", "0"},
		{"sum: `total += x * 2`: becomes total -= x * 2", "-2"},
		{"sum: `total += x * 2`: * becomes /", "0.5"},
		{"sum: `if total > limit { // too much`: > becomes <=", "above 0\nabove 2\n2"},
		{"sum: `if total > limit { // too much`: > becomes >=", "above 0\nabove 2\n2"},
		{"sum: `fmt.Println(\"above\", i)`: removed: fmt.Println(\"above\", i)", "2"},
		{"main: `func main() { fmt.Println(sum([]value{1, -1, 0}, 2)) }`: removed: fmt.Println(sum([]value{1, -1, 0}, 2))", ""},
	}
	files := token.NewFileSet()
	p, err := generate(files, importer.ForCompiler(files, "source", nil), "example", "main", map[string][]byte{"example/main.go": []byte(example)})
	if err != nil {
		t.Fatal(err)
	}
	run := compileProgram(t, p.files)
	names := map[string]int{"": 0}
	for _, m := range p.mutants {
		names[strings.TrimPrefix(m.name, "example/main.go: ")] = m.number
	}
	for _, want := range outputs {
		number, ok := names[want.mutant]
		if !ok {
			t.Errorf("there is no mutant %s", want.mutant)
			continue
		}
		delete(names, want.mutant)
		if got := run(number); got != want.output {
			t.Errorf("%q prints %q, want %q", want.mutant, got, want.output)
		}
	}
	for name := range names {
		t.Errorf("there is a mutant %s", name)
	}
}

// The copy of a function replaces it if the mutant is selected, with all arguments.
func TestDispatchedMutants(t *testing.T) {
	const text = `package main

import "fmt"

type counter struct{ n int }

func (c *counter) add(by ...int) {
	for _, n := range by {
		c.n += n
	}
}

func double(a, b int) (int, error) { return 2 * (a + b), nil }

func main() {
	var c counter
	c.add(1, 2)
	n, err := double(c.n, 4)
	fmt.Println(c.n, n, err)
}
`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	changed, err := dispatched([]declaredMutant{
		{"main.go", "c.n += n", "c.n -= n", ""}, {"main.go", "2 * (a + b)", "2 * (a - b)", ""}, {"main.go", "return 2", "return 3", ""},
	}, dir, all)
	if err != nil {
		t.Fatal(err)
	}
	run := compileProgram(t, changed)
	for number, want := range []string{"3 14 <nil>", "-3 2 <nil>", "3 -2 <nil>", "3 21 <nil>"} {
		if got := run(number); got != want {
			t.Errorf("mutant %d prints %q, want %q", number, got, want)
		}
	}
	for _, m := range []declaredMutant{{"main.go", "c", "d", ""}, {"main.go", "struct{ n int }", "int", ""}, {"main.go", "nothing", "", ""}} {
		if _, err := dispatched([]declaredMutant{m}, dir, all); err == nil {
			t.Errorf("%s: no error", m.name())
		}
	}
}

// Tests are run in parts, each once: first those that take least time. One that has killed a mutant is run alone only if it still exists.
func TestQuickTestsRunFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tests")
	const output = `#!/bin/sh
echo "--- PASS: TestSlow (9.00s)"
echo "    --- PASS: TestSlow/part (8.00s)"
echo "--- PASS: TestQuick (0.01s)"
echo "--- SKIP: TestSkipped (0.00s)"
echo "--- PASS: TestMedium (1.00s)"
echo PASS
`
	if err := os.WriteFile(file, []byte(output), 0o700); err != nil {
		t.Fatal(err)
	}
	p := &program{file: file, dir: t.TempDir()}
	patterns, err := p.measure(t.Context())
	if want := []string{"^(TestSkipped|TestQuick)$", "^(TestMedium)$", "^(TestSlow)$"}; err != nil || !slices.Equal(patterns, want) {
		t.Errorf("the patterns are %q, %v, want %q", patterns, err, want)
	}
	if got := p.only("TestQuick"); !slices.Equal(got, []string{"^TestQuick$"}) {
		t.Errorf("the pattern of one test is %q", got)
	}
	if got := p.only("TestRenamed"); got != nil {
		t.Errorf("the pattern of a test that does not exist is %q", got)
	}
}

// compileProgram compiles the program, and returns what it prints with a mutant.
func compileProgram(t *testing.T, files map[string][]byte) (run func(number int) string) {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "example")
	build.Dir = dir
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o644); err != nil {
			t.Fatal(err)
		}
		build.Args = append(build.Args, filepath.Base(name))
	}
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return func(number int) string {
		output, err := (&program{file: filepath.Join(dir, "example"), dir: dir}).command(t.Context(), number).CombinedOutput()
		if err != nil {
			t.Errorf("mutant %d: %v\n%s", number, err, output)
		}
		return strings.TrimSpace(string(output))
	}
}

// What was killed with the same code and tests is not run again, and a survivor is. With other code or tests, the test that has killed a mutant is
// known.
func TestResultsAreKept(t *testing.T) {
	name := filepath.Join(t.TempDir(), "mutants")
	for _, again := range []bool{false, true} {
		known, err := openResults(name)
		if err != nil {
			t.Fatal(err)
		}
		ran := ""
		r := runner{out: io.Discard, results: known, accepted: map[string]string{"equivalent": "a reason"}}
		for mutant, killer := range map[string]string{"killed": "TestIt", "surviving": "", "equivalent": ""} {
			if err := r.judge(mutant, "state", func() (string, error) { ran += mutant; return killer, nil }); err != nil {
				t.Fatal(err)
			}
		}
		if r.killed != 1 || r.survived != 1 || r.ok != 1 || strings.Contains(ran, "killed") == again {
			t.Errorf("again: %t: %d killed, %d survived, %d accepted; ran %s", again, r.killed, r.survived, r.ok, ran)
		}
		if known.killed("killed", "other") || known.killerOf("killed") != "TestIt" || known.killerOf("surviving") != "" {
			t.Errorf("with other code, killed: %t; the former killers are %q and %q", known.killed("killed", "other"), known.killerOf("killed"), known.killerOf("surviving"))
		}
		if err := known.file.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A text that no name contains is a mistake of the one who calls, and not a success.
func TestOnlyWithoutAMutant(t *testing.T) {
	results := filepath.Join(t.TempDir(), "mutants")
	t.Chdir(root)
	if _, err := run(t.Context(), options{only: "no such mutant", results: results}, io.Discard); err == nil || !strings.Contains(err.Error(), "no such mutant") {
		t.Errorf("got %v", err)
	}
}
