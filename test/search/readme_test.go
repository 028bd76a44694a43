package search_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"outboard.dev/outboard/test/search"
)

var update = flag.Bool("update", false, "write what was searched to the tables of README.md")

// compares reports whether the figures of README.md are compared. A mutant of the code that changes only figures breaks no promise.
func compares() bool { return os.Getenv("OUTBOARD_MUTANT") == "" }

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rowStart is what the row of the bound begins with.
func rowStart(b bound) string {
	return fmt.Sprintf("| %s | %d, %d, %d |", b.name, b.scope.Replicas, b.scope.Pods, b.scope.Nodes)
}

// rowOf returns the row of the bound.
func rowOf(b bound, r search.Result) string {
	histories := "all"
	if !r.Finished {
		histories = fmt.Sprintf("of up to %d moves", r.Depth)
	}
	return rowStart(b) + fmt.Sprintf(" %s | %s | %s |", histories, grouped(r.States), grouped(r.Steps))
}

// grouped writes the number as people read it.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// compareTable compares the table of README.md with what was searched in this run. With -update, it writes the table. A bound that was not
// searched in this run keeps its row, and so does, without -update, one that was searched within a time, unless all its histories were searched in
// this run and in the one of the row: another run may have come further, or less far.
func compareTable(t *testing.T, bounds []bound, results map[string]search.Result) {
	if !compares() || t.Failed() {
		return
	}
	title := "| bound of `make test` |"
	if *within > 0 {
		title = "| bound of `make prove` |"
	}
	lines := strings.Split(readme(t), "\n")
	start := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, title) }) + 2
	end := start
	for end < len(lines) && strings.HasPrefix(lines[end], "|") {
		end++
	}
	table := lines[start:end]
	var rows []string
	for _, b := range bounds {
		r, searched := results[b.name]
		i := slices.IndexFunc(table, func(line string) bool { return strings.HasPrefix(line, rowStart(b)) })
		switch {
		case searched && (*update || i < 0 || *within == 0 || r.Finished && strings.HasPrefix(table[i], rowStart(b)+" all |")):
			rows = append(rows, rowOf(b, r))
		case i >= 0:
			rows = append(rows, table[i])
		}
	}
	if *update {
		text := strings.Join(slices.Concat(lines[:start], rows, lines[end:]), "\n")
		if err := os.WriteFile("README.md", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !slices.Equal(rows, table) {
		t.Errorf("the table of README.md that begins with %q differs (-update writes it): this run has\n%s", title, strings.Join(rows, "\n"))
	}
}
