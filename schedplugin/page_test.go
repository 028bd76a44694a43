package schedplugin

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The table of arguments in docs/extender-or-plugin.md has each of them.
func TestArgumentsOfThePage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "extender-or-plugin.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n| argument |")
	table, _, _ = strings.Cut(table, "\n\n")
	var listed, want []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\|").FindAllStringSubmatch(table, -1) {
		listed = append(listed, m[1])
	}
	for field := range reflect.TypeFor[arguments]().Fields() {
		want = append(want, field.Tag.Get("json"))
	}
	if !slices.Equal(listed, want) {
		t.Errorf("the table has %q, want %q", listed, want)
	}
}
