package docs

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxWidth is the number of characters at which all pages wrap their prose.
const maxWidth = 100

var (
	// unwrapped matches what cannot be wrapped: rows of tables, headings, pictures, comments.
	unwrapped = regexp.MustCompile(`^ *(\||#|!\[|<!--)`)
	listItem  = regexp.MustCompile(`^ *([-*]|\d+\.) `)
)

// tooWide returns the numbers of the lines of prose that are longer than maxWidth and could be
// wrapped: code, tables, headings, pictures, comments and single words such as addresses are exempt.
func tooWide(text []byte) (found []int) {
	prose := fence.ReplaceAllFunc(text, func(block []byte) []byte {
		return bytes.Repeat([]byte("\n"), bytes.Count(block, []byte("\n")))
	})
	number := 0
	for line := range strings.Lines(string(prose)) {
		number++
		line = strings.TrimSuffix(line, "\n")
		if utf8.RuneCountInString(line) <= maxWidth || unwrapped.MatchString(line) {
			continue
		}
		if words := strings.TrimSpace(listItem.ReplaceAllString(line, "")); strings.Contains(words, " ") {
			found = append(found, number)
		}
	}
	return found
}

func TestTooWide(t *testing.T) {
	wide := strings.Repeat("word ", 21)
	address := "https://example.com/" + strings.Repeat("x", maxWidth)
	page := "# " + wide + "\n" + wide + "\n```sh\n" + wide + "\n```\n| " + wide + "|\n* " + wide + "\n" + address + "\n* " + address +
		"\n" + strings.Repeat("ä", maxWidth-2) + " b\n" + strings.Repeat("ä", maxWidth-1) + " b\n"
	if got, want := tooWide([]byte(page)), []int{2, 7, 11}; !slices.Equal(got, want) {
		t.Errorf("the lines %v are too wide, want %v", got, want)
	}
}

// Pages wrap at one width.
func TestWidth(t *testing.T) {
	root := filepath.Join("..", "..")
	for _, path := range pages(t, root) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range tooWide(text) {
			t.Errorf("%s:%d: longer than %d characters", path, line, maxWidth)
		}
	}
}
