package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// Each layer can be switched off in the code as it is: what remains compiles.
func TestWithoutEachLayer(t *testing.T) {
	t.Chdir("../..")
	for _, table := range tables {
		for _, l := range table.layers {
			overlay, err := l.without(t.TempDir())
			if err != nil {
				t.Error(err)
				continue
			}
			arguments := []string{"build", "-overlay", overlay}
			for _, e := range l.edits {
				arguments = append(arguments, "./"+filepath.Dir(e.file))
			}
			if out, err := exec.CommandContext(t.Context(), "go", arguments...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", l.name, err, out)
			}
		}
	}
}

func TestLayerWithoutItsCode(t *testing.T) {
	t.Chdir("../..")
	for _, old := range []string{"no code is like this", "rowTable"} {
		if overlay, err := (layer{"l", []edit{{"snapshot/rowtable.go", old, ""}}}).without(t.TempDir()); err == nil {
			t.Errorf("%q: %s", old, overlay)
		}
	}
}

// A table of a benchmark has the figures of the benchmark without each layer relative to those with it.
func TestRunLayers(t *testing.T) {
	t.Chdir("../..")
	var out bytes.Buffer
	if err := runLayers(t.Context(), options{rounds: 2, only: "publishing"}, &out); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^publishing .* of 2 rounds; .*
 +pod
all layers +[0-9]+ \[[0-9]+–[0-9]+\]
without: rows in chunks .* +[0-9.]+ \[[0-9.]+–[0-9.]+\]
$`)
	if !want.Match(out.Bytes()) {
		t.Errorf("the table is\n%s", &out)
	}
}
