package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// document is a page of Markdown that grows.
type document struct{ strings.Builder }

// newDocument returns a page with a title and a comment that names the source of the page.
func newDocument(title, source string) *document {
	d := &document{}
	d.line("# %s\n\n<!-- Generated from %s: change that, and then run: make generate -->\n", title, source)
	return d
}

func (d *document) line(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

// width is the number of characters at which pages wrap, as test/docs checks.
const width = 100

// paragraph writes a text wrapped, and an empty line. The text may have several paragraphs.
func (d *document) paragraph(format string, args ...any) {
	for text := range strings.SplitSeq(strings.TrimSpace(fmt.Sprintf(format, args...)), "\n\n") {
		line := ""
		for i, word := range strings.Fields(text) {
			switch {
			case i == 0:
				line = word
			case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
				d.line("%s", line)
				line = word
			default:
				line += " " + word
			}
		}
		d.line("%s\n", line)
	}
}

// table writes a table. Its cells are Markdown.
func (d *document) table(header []string, rows [][]string) {
	d.row(header)
	d.line("%s|", strings.Repeat("|---", len(header)))
	for _, row := range rows {
		d.row(row)
	}
	d.line("")
}

func (d *document) row(cells []string) {
	d.line("%s", strings.ReplaceAll("| "+strings.Join(cells, " | ")+" |", "|  |", "| |"))
}

var special = strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;", "\n", " ")

// plain returns text as Markdown that shows it.
func plain(text string) string { return special.Replace(text) }

// code returns text as code in a table.
func code(text string) string { return "`" + strings.ReplaceAll(text, "|", `\|`) + "`" }

var omitted = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchor returns the anchor of a heading, as GitHub derives it.
func anchor(heading string) string {
	return strings.ReplaceAll(omitted.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}
