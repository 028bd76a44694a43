package main

import (
	"fmt"
	"regexp"
	"strings"

	"outboard.dev/outboard/internal/wiring/doctor"
)

const codesPath = "internal/wiring/doctor/codes.md"

var (
	codeHeading = regexp.MustCompile(`(?m)^(##|###) (.+)\n\n`)
	// sentenceEnd is a full stop after which a sentence, or nothing, follows.
	sentenceEnd = regexp.MustCompile(`\.(\s+([^a-z]|kube)|$)`)
)

// findings returns the page about the findings of outboard check: the first sentence about each.
func findings(string) (string, error) {
	d := newDocument("Findings of outboard check", codesPath)
	d.paragraph("[`outboard check`](../check.md) reports each finding with its code. `outboard check --explain CODE` says more about it, as the link of the code does.")
	toPage := strings.NewReplacer("](../../../docs/", "](../", "](../../../", "](../../", "](#", "](../../"+codesPath+"#")
	var rows [][]string
	for _, m := range codeHeading.FindAllStringSubmatchIndex(doctor.Codes, -1) {
		mark, name := doctor.Codes[m[2]:m[3]], doctor.Codes[m[4]:m[5]]
		if mark == "##" {
			if len(rows) > 0 {
				d.table([]string{"code", "meaning"}, rows)
			}
			rows = nil
			d.line("## %s\n", name)
			continue
		}
		paragraph, _, _ := strings.Cut(doctor.Codes[m[1]:], "\n\n")
		text := strings.Join(strings.Fields(paragraph), " ")
		end := sentenceEnd.FindStringIndex(text)
		if end == nil {
			return "", fmt.Errorf("%s: the first paragraph about %s has no sentence", codesPath, name)
		}
		rows = append(rows, []string{fmt.Sprintf("[%s](../../%s#%s)", name, codesPath, anchor(name)), strings.ReplaceAll(toPage.Replace(text[:end[0]+1]), "|", `\|`)})
	}
	d.table([]string{"code", "meaning"}, rows)
	return strings.TrimSuffix(d.String(), "\n"), nil
}
