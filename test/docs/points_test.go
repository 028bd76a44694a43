package docs

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	schedulerv1 "k8s.io/kube-scheduler/config/v1"
)

// The table of extension points has all that kube-scheduler's configuration has, and the one of Score that has no plugins of its own.
func TestExtensionPoints(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "extender-or-plugin.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| extension point |")
	table, _, _ = strings.Cut(table, "\n\n")
	listed := map[string]bool{}
	for line := range strings.Lines(table) {
		if first, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && strings.HasPrefix(line, "| ") {
			for point := range strings.SplitSeq(first, ", ") {
				listed[point] = true
			}
		}
	}
	want := map[string]bool{"NormalizeScore": true}
	for field := range reflect.TypeFor[schedulerv1.Plugins]().Fields() {
		if field.Name != "MultiPoint" { // is all others
			want[field.Name] = true
		}
	}
	if !reflect.DeepEqual(listed, want) {
		t.Errorf("the table has %v, want %v", listed, want)
	}
}

// The table of what policies do without a current value has all policies with the field whenStale, and its default in each.
func TestWhenStale(t *testing.T) {
	read := func(elem ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "docs"}, elem...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, table, _ := strings.Cut(read("signals.md"), "\n| policy | default |")
	table, _, _ = strings.Cut(table, "\n\n")
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| \\[([A-Za-z]+)\\]\\(\\S+\\) \\| `([A-Za-z]+)` \\|").FindAllStringSubmatch(table, -1) {
		listed[m[1]] = m[2]
	}
	want := map[string]string{}
	for section := range strings.SplitSeq(read("reference", "configuration.md"), "\n## ") {
		if m := regexp.MustCompile("(?m)^\\| `whenStale` \\| [^|]+ \\| `([A-Za-z]+)` \\|").FindStringSubmatch(section); m != nil {
			name, _, _ := strings.Cut(section, "\n")
			want[name] = m[1]
		}
	}
	if len(want) == 0 || !reflect.DeepEqual(listed, want) {
		t.Errorf("the table has %v, want %v", listed, want)
	}
}
