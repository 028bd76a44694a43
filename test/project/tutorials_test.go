package project

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The files of other authors are theirs, byte for byte.
func TestTutorialsAreUnchanged(t *testing.T) {
	dir := filepath.Join(root(t), "examples", "from-the-tutorials")
	files, err := filepath.Glob(filepath.Join(dir, "*", "original", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the files are %q: %v", files, err)
	}
	slices.Sort(files)
	var sums string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			t.Fatal(err)
		}
		sums += fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name)
	}
	want, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if sums != string(want) {
		t.Errorf("SHA256SUMS is\n%s, and the files have\n%s", want, sums)
	}
}
