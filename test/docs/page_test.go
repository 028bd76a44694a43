package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// The recipe of docs/page.md lets a proxy pass what the scripts of the page read, and not the path of a POST request.
func TestProxiedPathsAreThoseOfThePage(t *testing.T) {
	read := func(path string) string {
		data, err := os.ReadFile(filepath.Join(Root, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	paths := func(text, pattern string) (found []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			found = append(found, m[1])
		}
		slices.Sort(found)
		return slices.Compact(found)
	}
	scripts, want := "", []string{"/ui/"}
	names, err := fs.Glob(os.DirFS(Root), "internal/ui/static/*.js")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		scripts += read(name)
	}
	for _, path := range paths(scripts, "['`](/(?:api/[a-z]+|explain))\\b") {
		if path != "/api/try" {
			want = append(want, path)
		}
	}
	slices.Sort(want)
	if got := paths(read("docs/page.md"), `--upstream=http://127\.0\.0\.1:8082(/\S*)`); !slices.Equal(got, want) {
		t.Errorf("the proxy passes %q, and the page reads %q", got, want)
	}
}
