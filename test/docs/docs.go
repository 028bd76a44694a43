// Package docs reads the pages of the documentation. Its tests check what they say; those in test/pages run their blocks. A block for
// which this is impossible follows a comment with the reason:
//
//	<!-- not run: it takes an hour -->
//	<!-- not compared: times differ -->
package docs

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Root is the root of the checkout, as the tests here and in test/pages see it.
const Root = "../.."

// Page is a page of the documentation.
type Page struct {
	Path string // relative to the root
	Text string
}

// Block is a fenced block of a page.
type Block struct {
	Page, Language, Text string
	Line                 int
	Next                 bool   // only an empty line stands between it and the block before
	Unchecked            string // "run" or "compared" if a comment says that it is not; else ""
}

func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

var (
	fence     = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	unchecked = regexp.MustCompile(`<!-- not (run|compared): \S.* -->\n$`)
	// unfenced matches code that Markdown supports and fence does not: indented after an empty
	// line, or with another kind of fence.
	unfenced = regexp.MustCompile("(?m)(?:\\A|^[ \t]*\n)(?: {4}|\t)[ \t]*\\S.*$|^.*(?:```|~~~).*$")
	makeCall = regexp.MustCompile(`(?m)^(make [a-z-]+(?: [A-Z]+=(?:'[^']*'|\S+))?)(?: +#.*)?$`)
)

// Pages returns all pages, in the order of their paths.
func Pages(t testing.TB) (found []Page) {
	t.Helper()
	walk(t, ".md", func(path, text string) { found = append(found, Page{path, text}) })
	if len(found) == 0 {
		t.Fatal("there is no page")
	}
	return found
}

// walk calls visit with the files of the checkout whose names end in suffix, and their paths relative to the root.
func walk(t testing.TB, suffix string, visit func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(Root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != Root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(Root, path)
		visit(filepath.ToSlash(relative), string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Blocks returns the blocks of the page, and the lines of code outside blocks.
func (p Page) Blocks() (found []Block, elsewhere []int) {
	text := []byte(p.Text)
	rest, end := bytes.Clone(text), -1
	for _, m := range fence.FindAllSubmatchIndex(text, -1) {
		b := Block{
			Page: p.Path, Language: string(text[m[2]:m[3]]), Text: string(text[m[4]:m[5]]),
			Line: 1 + bytes.Count(text[:m[0]], []byte("\n")),
			Next: end > 0 && len(bytes.TrimSpace(text[end:m[0]])) == 0,
		}
		if mark := unchecked.FindSubmatch(text[:m[0]]); mark != nil {
			b.Unchecked = string(mark[1])
		}
		found, end = append(found, b), m[1]
		for i := m[0]; i < m[1]; i++ {
			if rest[i] != '\n' {
				rest[i] = '-'
			}
		}
	}
	for _, m := range unfenced.FindAllIndex(rest, -1) {
		elsewhere = append(elsewhere, 1+bytes.Count(rest[:m[1]], []byte("\n")))
	}
	return found, elsewhere
}

// MakeCalls returns the calls of make in a block of commands, and the rest of the block.
func (b Block) MakeCalls() (calls []string, rest string) {
	if b.Language == "sh" {
		for _, m := range makeCall.FindAllStringSubmatch(b.Text, -1) {
			calls = append(calls, m[1])
		}
	}
	return calls, strings.TrimSpace(makeCall.ReplaceAllString(b.Text, ""))
}
