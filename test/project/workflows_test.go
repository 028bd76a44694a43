package project

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The scripts of CI, the workflows, and make nightly and make release-check run make targets that exist. make lint checks the rest of the
// workflows with actionlint.
func TestWorkflowsRunMakeTargets(t *testing.T) {
	read := func(path string) string {
		data, err := os.ReadFile(filepath.Join(root(t), path))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	makefile := read("Makefile")
	var targets []string
	for _, path := range []string{".ci/run", ".ci/changed", ".github/workflows/ci.yaml", ".github/workflows/nightly.yaml", ".github/workflows/release.yaml"} {
		for _, m := range regexp.MustCompile(`\bmake ([a-z-]+)`).FindAllStringSubmatch(read(path), -1) {
			targets = append(targets, m[1])
		}
	}
	for _, m := range regexp.MustCompile(`@test/each ((?:.*\\\n)*.*)`).FindAllStringSubmatch(makefile, -1) {
		words := strings.FieldsFunc(m[1], func(r rune) bool { return strings.ContainsRune(" \t\n\\\"", r) })
		targets = append(targets, slices.DeleteFunc(words, func(word string) bool { return strings.Contains(word, "=") })...) // a variable
	}
	for _, name := range targets {
		if !strings.Contains(makefile, "\n"+name+":") {
			t.Errorf("there is no make target %q", name)
		}
	}
	for _, name := range []string{"check", "test", "test-cluster", "nightly", "release-check", "race", "test-pages", "compat", "publish"} {
		if !slices.Contains(targets, name) {
			t.Errorf("nothing runs make %s", name)
		}
	}
}

// The tests and benchmarks that make runs by their names exist. go test passes if there is none with the name.
func TestMakefileNamesTests(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "git", "-C", root(t), "grep", "-hoE", `^func (Test|Benchmark)\w+`, "--", "*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	functions := strings.Split(string(out), "\n")
	for _, m := range regexp.MustCompile(`'\^((?:Test|Benchmark)\w*)(?:\(([\w|]+)\))?\$\$'`).FindAllStringSubmatch(string(makefile), -1) {
		for end := range strings.SplitSeq(m[2], "|") {
			if !slices.Contains(functions, "func "+m[1]+end) {
				t.Errorf("the Makefile names %s%s, which does not exist", m[1], end)
			}
		}
	}
}

// Updates are proposed for each module with dependencies of its own.
func TestDependencyUpdatesCoverAllModules(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string `json:"package-ecosystem"`
			Directories []string
		}
	}
	readYAML(t, filepath.Join(root(t), ".github/dependabot.yml"), &config)
	var covered []string
	for _, update := range config.Updates {
		if update.Ecosystem == "gomod" {
			covered = append(covered, update.Directories...)
		}
	}
	var expected []string
	for _, dir := range modules(t) {
		if !strings.HasPrefix(dir, "examples/") {
			expected = append(expected, "/"+strings.TrimPrefix(dir, "."))
		}
	}
	slices.Sort(covered)
	slices.Sort(expected)
	if !slices.Equal(covered, expected) {
		t.Errorf("updates are proposed for %v; the modules are %v", covered, expected)
	}
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}
