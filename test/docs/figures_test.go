package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	figure     = regexp.MustCompile(`\d[\d,]*(?:\.\d+)?`)
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
	source     = regexp.MustCompile(`\[how it (?:was measured|is tested)\]\(([^)#]+)#([^)]+)\)`)
)

// figures returns the numbers in the text, without those in the targets of links.
func figures(text string) []string {
	all := figure.FindAllString(linkTarget.ReplaceAllString(text, "]"), -1)
	for i := range all {
		all[i] = strings.TrimRight(all[i], ",")
	}
	return all
}

// section returns the section of the page with the anchor, with the sections in it; "" if there is none.
func section(page, anchor string) string {
	var found strings.Builder
	level := 0 // of the heading, once it is found
	fenced := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if marks, _, ok := strings.Cut(line, " "); ok && !fenced && marks != "" && strings.Trim(marks, "#") == "" {
			if level > 0 && len(marks) <= level {
				break
			}
			if level == 0 && slices.Equal(anchors(line), []string{anchor}) {
				level = len(marks)
			}
		}
		if level > 0 {
			found.WriteString(line)
		}
	}
	return found.String()
}

// Each figure in the README's table of results is one of the section to which its row links. Whether a percent sign follows a space does
// not matter.
func TestFiguresOfTheREADME(t *testing.T) {
	rows, checked := 0, 0
	for line := range strings.Lines(read(t, "README.md")) {
		link := source.FindStringSubmatch(line)
		if link == nil || !strings.HasPrefix(line, "|") {
			continue
		}
		rows++
		text := section(read(t, link[1]), link[2])
		if text == "" {
			t.Errorf("%s has no section #%s", link[1], link[2])
		}
		there := figures(text)
		for _, number := range figures(line) {
			checked++
			if !slices.Contains(there, number) {
				t.Errorf("the section #%s of %s does not have %s, which README.md says of it", link[2], link[1], number)
			}
		}
	}
	if rows < 5 || checked < 15 {
		t.Errorf("only %d figures in %d rows are checked", checked, rows)
	}
}
