package docs

import (
	"os"
	"path/filepath"
	"reflect"
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
