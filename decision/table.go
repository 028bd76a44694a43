package decision

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// maxTableWidth is how wide a Table may be to be written as columns.
const maxTableWidth = 100

// Table is something to show in columns. Every row has as many cells as Head.
type Table struct {
	Head []string
	Rows [][]string
}

// Text writes the table, each line behind the indent: in columns if these fit a terminal,
// else each row as a list, one cell a line.
func (t *Table) Text(b *strings.Builder, indent string) {
	if t.width()+len(indent) > maxTableWidth {
		t.list(b, indent)
		return
	}
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		fmt.Fprintf(table, "%s%s\n", indent, strings.Join(row, "\t"))
	}
	table.Flush() // into a strings.Builder, which does not fail
}

// width is that of the columns, with two spaces between them.
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
