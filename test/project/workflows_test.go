package project

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The workflows run make targets that exist. make lint checks the rest of their syntax with actionlint.
func TestWorkflowsRunMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root(t), ".github/workflows/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("workflows: %v (%v)", files, err)
	}
	var targets []string
	for _, file := range files {
		var workflow struct {
			Jobs map[string]struct {
				Strategy struct {
					Matrix struct{ Target []string }
				}
				Steps []struct{ Run string }
			}
		}
		readYAML(t, file, &workflow)
		for _, job := range workflow.Jobs {
			for _, words := range job.Strategy.Matrix.Target {
				targets = append(targets, strings.Fields(words)...)
			}
			for _, step := range job.Steps {
				targets = append(targets, strings.Fields(strings.TrimPrefix(step.Run, "make"))...)
			}
		}
	}
	target := regexp.MustCompile(`^[a-z-]+$`) // neither a variable nor an expression of the workflow
	for _, name := range targets {
		if target.MatchString(name) && !strings.Contains(string(makefile), "\n"+name+":") {
			t.Errorf("there is no make target %q", name)
		}
	}
	for _, name := range []string{"check", "test", "race", "fuzz", "cases", "figures", "scale", "test-browser", "chaos", "compat", "reproduce", "scan", "scheduler-perf"} {
		if !slices.Contains(targets, name) {
			t.Errorf("no workflow runs make %s", name)
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
