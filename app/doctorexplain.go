package app

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"outboard.dev/outboard/internal/wiring/doctor"
	"outboard.dev/outboard/policy/fields"
)

var (
	codeHeading = regexp.MustCompile(`(?m)^### ([A-Z][A-Za-z0-9]+)$`)
	anyHeading  = regexp.MustCompile(`(?m)^##`)
	link        = regexp.MustCompile(`\[([^\]]+)\]\(([^)]+)\)`)
)

// codes returns the codes of all findings.
func codes() (all []string) {
	for _, m := range codeHeading.FindAllStringSubmatch(doctor.Codes, -1) {
		all = append(all, m[1])
	}
	return all
}

// explainCode returns the section of [doctor.Codes] about the code of a finding, as plain text.
func explainCode(code string) (string, error) {
	var near []string
	for _, m := range codeHeading.FindAllStringSubmatchIndex(doctor.Codes, -1) {
		name := doctor.Codes[m[2]:m[3]]
		if strings.EqualFold(name, code) {
			return name + "\n\n" + sectionAt(m[1]) + "\n", nil
		}
		if len(code) > 2 && strings.Contains(strings.ToLower(name), strings.ToLower(code)) {
			near = append(near, name)
		}
	}
	if nearest := fields.Nearest(code, codes()); nearest != "" && !slices.Contains(near, nearest) {
		near = append(near, nearest)
	}
	question := ""
	if len(near) > 0 {
		question = ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return "", fmt.Errorf("--explain=%q: no finding has this code%s", code, question)
}

// sectionAt returns the section of [doctor.Codes] whose heading ends at an index, as plain text.
func sectionAt(end int) string {
	section := doctor.Codes[end:]
	if next := anyHeading.FindStringIndex(section); next != nil {
		section = section[:next[0]]
	}
	return link.ReplaceAllStringFunc(strings.TrimSpace(section), withoutLink)
}

// withoutLink returns a link as plain text: with the address if it is on the web, with the path in
// the repository if it is a page.
func withoutLink(text string) string {
	m := link.FindStringSubmatch(text)
	page, _, _ := strings.Cut(m[2], "#")
	switch {
	case strings.Contains(m[2], "://"):
		return m[1] + " (" + m[2] + ")"
	case page != "":
		return m[1] + " (" + path.Join("docs", "reference", page) + ")"
	}
	return m[1]
}
