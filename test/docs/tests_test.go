package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// testName is a test that a page names, and maybe the folder to which the page links beside it: "`TestX` in [test/e2e](../test/e2e)".
	testName = regexp.MustCompile(`\b(Test[A-Z][A-Za-z]{2,})\b(?:` + "`" + ` in \[[^\]]+\]\(([^)#]+)\))?`)
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
)

// tests returns the folders, relative to the root, of the tests with each name.
func tests(t *testing.T, root string) map[string][]string {
	t.Helper()
	folders := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
			folders[m[1]] = append(folders[m[1]], folder)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return folders
}

// missingTests returns the tests that the page at path, relative to the root, names and that do not exist, or not in the folder to which it
// links.
func missingTests(path, text string, folders map[string][]string) (missing []string) {
	for _, m := range testName.FindAllStringSubmatch(text, -1) {
		want := filepath.Join(filepath.Dir(path), m[2])
		found := false
		for _, folder := range folders[m[1]] {
			found = found || m[2] == "" || folder == want
		}
		if !found {
			missing = append(missing, m[0])
		}
	}
	return missing
}

// Every test that a page names exists, in the folder that it names.
func TestNamedTests(t *testing.T) {
	root := filepath.Join("..", "..")
	folders := tests(t, root)
	for _, page := range pages(t, root) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		path, err := filepath.Rel(root, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range missingTests(path, string(text), folders) {
			t.Errorf("%s: there is no test %s", path, name)
		}
	}
}

func TestMissingTests(t *testing.T) {
	folders := map[string][]string{"TestOne": {"test/e2e"}, "TestTwo": {"test/chaos", "policy"}}
	text := "`TestOne` in [test/e2e](../test/e2e), `TestOne` in [test/chaos](../test/chaos), `TestTwo` in [policy](../policy), `TestTwo`, `TestThree`"
	got := strings.Join(missingTests(filepath.Join("docs", "page.md"), text, folders), "; ")
	if want := "TestOne` in [test/chaos](../test/chaos); TestThree"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
