package rules

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The expression in the documentation of the package has the parts that it shows.
func TestExampleHasItsParts(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(doc), "\n//\tusage")
	text, _, _ := strings.Cut(after, "\n//\n")
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	e, errs := c.compile(field.NewPath("expression"), "usage"+strings.ReplaceAll(text, "\n//", ""), ^deps(0), types.BoolType)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	names := map[class]string{ofRequest: "ofRequest", ofObject: "ofObject", ofUsage: "ofUsage", ofSignal: "ofSignal"}
	got := ""
	for _, p := range e.parts {
		got += fmt.Sprintln(p.name, p.text, names[p.class])
	}
	want := ""
	for line := range strings.Lines(string(doc)) {
		if row, ok := strings.CutPrefix(line, "//\t@"); ok {
			row, _, _ = strings.Cut(row, "  once")
			row, _, _ = strings.Cut(row, "  read")
			want += fmt.Sprintln(strings.Join(strings.Fields("@"+row), " "))
		}
	}
	if got != want || len(e.parts) != 4 {
		t.Errorf("the parts are\n%swant\n%s", got, want)
	}
}
