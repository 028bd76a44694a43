package project

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var metricName = regexp.MustCompile("[\"`](outboard_[a-z_]+)[\"`]")

// The page about metrics has exactly the metrics in the code.
func TestMetricsAreDocumented(t *testing.T) {
	const root = "../.."
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "test" || strings.HasPrefix(d.Name(), ".") && path != root) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range metricName.FindAllSubmatch(text, -1) {
			found[string(m[1])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range metricName.FindAllSubmatch(page, -1) {
		documented[string(m[1])] = true
	}
	if got, want := slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
		t.Errorf("documented: %q\nin the code: %q", got, want)
	}
}
