package docs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// brokenRows returns the numbers of the lines that are rows of a table with another number of cells than its header. A browser hides the
// cells that are too many.
func brokenRows(page string) (broken []int) {
	header, fenced := 0, false
	for i, line := range strings.Split(page, "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if fenced || !strings.HasPrefix(line, "|") {
			header = 0
			continue
		}
		cells := strings.Count(line, "|") - strings.Count(line, `\|`)
		if header == 0 {
			header = cells
		}
		if cells != header || !strings.HasSuffix(line, "|") {
			broken = append(broken, i+1)
		}
	}
	return broken
}

func TestBrokenRows(t *testing.T) {
	const page = "| a | b |\n|---|---|\n| `x\\|y` | 1 |\n| 2 |\n|||\n||||\n\n```text\n| no | table\n```\n| c |\n|---|\n| 3\n"
	if got, want := brokenRows(page), []int{4, 6, 13}; !slices.Equal(got, want) {
		t.Errorf("the lines %v are broken, want %v", got, want)
	}
}

// Each row of each table has as many cells as its header.
func TestTables(t *testing.T) {
	for _, path := range pages(t, filepath.Join("..", "..")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range brokenRows(string(text)) {
			t.Errorf("%s:%d: another number of cells than in the header", path, line)
		}
	}
}
