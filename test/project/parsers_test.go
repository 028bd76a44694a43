package project

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// unbounded are functions whose time is not proportional to the text that they read: ParseQuantity takes minutes for "1e-9999999".
var unbounded = []string{"resource.ParseQuantity(", "resource.MustParse(", "regexp.Compile(", "regexp.MatchString(", "time.LoadLocation(", "big.ParseFloat("}

// Texts of pods, nodes and callers are parsed in bounded time: quantities by policy/fields only.
func TestParsersAreBounded(t *testing.T) {
	for _, tree := range []string{"app", "internal", "policies", "policy", "schedplugin", "signal", "snapshot"} {
		err := filepath.WalkDir(filepath.Join("..", "..", tree), func(name string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "fields/quantity.go") {
				return err
			}
			text, err := os.ReadFile(name)
			for _, f := range unbounded {
				if strings.Contains(string(text), f) {
					t.Errorf("%s calls %s), whose time is not proportional to the text", name, f)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
