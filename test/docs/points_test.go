package docs

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	schedulerv1 "k8s.io/kube-scheduler/config/v1"
)

// The table of extension points has all that kube-scheduler's configuration has, and the one of Score that has no plugins of its own.
func TestExtensionPoints(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "docs/extender-or-plugin.md"), "\n| extension point |")
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
	_, table, _ := strings.Cut(read(t, "docs/signals.md"), "\n| policy | default |")
	table, _, _ = strings.Cut(table, "\n\n")
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| \\[([A-Za-z]+)\\]\\(\\S+\\) \\| `([A-Za-z]+)` \\|").FindAllStringSubmatch(table, -1) {
		listed[m[1]] = m[2]
	}
	want := map[string]string{}
	for section := range strings.SplitSeq(read(t, "docs/reference/configuration.md"), "\n## ") {
		if m := regexp.MustCompile("(?m)^\\| `whenStale` \\| [^|]+ \\| `([A-Za-z]+)` \\|").FindStringSubmatch(section); m != nil {
			name, _, _ := strings.Cut(section, "\n")
			want[name] = m[1]
		}
	}
	if len(want) == 0 || !reflect.DeepEqual(listed, want) {
		t.Errorf("the table has %v, want %v", listed, want)
	}
}
