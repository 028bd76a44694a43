package decision

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// maxTableWidth is the width up to which a Table is written in columns.
const maxTableWidth = 100

// Table is a table of texts. Every row has as many cells as Head.
type Table struct {
	Head []string
	Rows [][]string
}

// Text writes the table with the indent: in columns if they fit a terminal, and otherwise each row
// as a list with one cell on each line.
func (t *Table) Text(b *strings.Builder, indent string) {
	if t.width()+len(indent) > maxTableWidth {
		t.list(b, indent)
		return
	}
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		fmt.Fprintf(table, "%s%s\n", indent, strings.Join(row, "\t"))
	}
	table.Flush() // a strings.Builder does not fail
}

// width returns the width of the columns, with two spaces between them.
func (t *Table) width() int {
	width := 2 * (len(t.Head) - 1)
	for at, name := range t.Head {
		widest := utf8.RuneCountInString(name)
		for _, row := range t.Rows {
			widest = max(widest, utf8.RuneCountInString(row[at]))
		}
		width += widest
	}
	return width
}

func (t *Table) list(b *strings.Builder, indent string) {
	for _, row := range t.Rows {
		fmt.Fprintf(b, "%s%s\n", indent, row[0])
		for at, cell := range row[1:] {
			fmt.Fprintf(b, "%s    %s: %s\n", indent, t.Head[at+1], cell)
		}
	}
}
