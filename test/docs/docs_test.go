package docs

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// read returns the text of a file of the checkout.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root, filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// check is what each page must hold to.
type check struct {
	name  string
	wrong func(Page) []string // what is wrong in a page
	// On the page docs/page.md with the text, found is wrong.
	text  string
	found []string
}

func checks(t *testing.T) []check {
	metrics := metricName.FindAllString(read(t, "docs/reference/metrics.md"), -1)
	makefile := read(t, "Makefile")
	var code []string
	tests := map[string][]string{}
	walk(t, ".go", func(file, text string) {
		code = append(code, text)
		if strings.HasSuffix(file, "_test.go") {
			for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
				tests[m[1]] = append(tests[m[1]], path.Dir(file))
			}
		}
	})
	wide := strings.Repeat("word ", 21)
	return []check{
		{"links have targets", brokenLinks,
			"# Can it `read`, too?\n[a](#can-it-read-too) [b](../README.md) [c](https://example.com/x#y) [d](gone.md) [e](../README.md#gone)\n" +
				"```sh\n# no heading\n[g](gone.md)\n```\n[h](#no-heading)\n",
			[]string{"gone.md", "../README.md#gone", "#no-heading"}},
		{"rows have as many cells as their header", brokenRows,
			"| a | b |\n|---|---|\n| `x\\|y` | 1 |\n| 2 |\n|||\n||||\n\n```text\n| no | table\n```\n| c |\n|---|\n| 3\n",
			[]string{"line 4", "line 6", "line 13"}},
		{"lines have at most 100 characters", tooWide,
			"# " + wide + "\n" + wide + "\n```sh\n" + wide + "\n```\n| " + wide + "|\n* " + wide + "\nhttps://example.com/" + strings.Repeat("x", 100) + "\n",
			[]string{"line 2", "line 7"}},
		{"metrics exist", func(p Page) []string { return missingMetrics(p, metrics) },
			"`outboard_config_last_reload_successful`, `outboard_none`", []string{"outboard_none"}},
		{"tests exist", func(p Page) []string { return missingTests(p, tests) },
			"`TestPages` in [test/docs](../test/docs), `TestPages` in [test/e2e](../test/e2e), `TestChecks`, `TestNone`",
			[]string{"TestPages` in [test/e2e](../test/e2e)", "TestNone"}},
		{"make targets exist", func(p Page) []string { return missingTargets(p, makefile) },
			"`make build` and `make none`\n```sh\nmake nothing\n```\n", []string{"none", "nothing"}},
		{"blocks are checked", func(p Page) []string { return uncheckedBlocks(p, code) },
			"```sh\nls\n```\n\n```text\na\n```\n\n<!-- not run: it takes an hour -->\n```sh\nls\n```\n\n```text\na\n```\n\n" +
				"<!-- not run: why -->\n```text\na\n```\n```python\n```\n```sh\nmake build\nls\n```\n```go\nfunc none() {\n}\n```\n\n    code\n",
			[]string{"line 14 has no output to compare with", "line 19 is marked as not run", "line 22 is in \"python\"",
				"line 24 has other commands beside make", "line 28 is in no Go file:\nfunc none() {\n}", "line 33 is code outside a fenced block"}},
	}
}

func TestPages(t *testing.T) {
	all := checks(t)
	for _, p := range Pages(t) {
		for _, c := range all {
			for _, wrong := range c.wrong(p) {
				t.Errorf("%s: %s: %s", p.Path, c.name, wrong)
			}
		}
	}
}

// Each check finds what is wrong.
func TestChecks(t *testing.T) {
	for _, c := range checks(t) {
		if got := c.wrong(Page{"docs/page.md", c.text}); !slices.Equal(got, c.found) {
			t.Errorf("%s: found\n%q, want\n%q", c.name, got, c.found)
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	omitted = regexp.MustCompile(`[^\p{L}\p{N} _-]`) // from a heading, in its anchor
)

// anchors returns the anchors of the headings of a page, as GitHub derives them.
func anchors(text string) []string {
	var found []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		found = append(found, strings.ReplaceAll(omitted.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return found
}

// badge is the status of a workflow, or its runs, as the root of the repository links to them on GitHub.
var badge = regexp.MustCompile(`^\.\./\.\./actions/workflows/([a-z-]+\.yaml)(/badge\.svg)?$`)

// brokenLinks returns the links to missing files or headings. It skips links to other sites.
func brokenLinks(p Page) (broken []string) {
	for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(p.Text, ""), -1) {
		file, anchor, hasAnchor := strings.Cut(m[1], "#")
		if path.Dir(p.Path) == "." {
			file = badge.ReplaceAllString(file, ".github/workflows/$1")
		}
		if strings.Contains(file, "://") {
			continue
		}
		text := []byte(p.Text)
		var err error
		if file != "" {
			target := filepath.Join(Root, path.Dir(p.Path), file)
			if _, err = os.Stat(target); err == nil && hasAnchor {
				text, err = os.ReadFile(target)
			}
		}
		if err != nil || hasAnchor && !slices.Contains(anchors(string(text)), anchor) {
			broken = append(broken, m[1])
		}
	}
	return broken
}

// brokenRows returns the rows of tables with another number of cells than the header. A browser hides the cells that are too many.
func brokenRows(p Page) (broken []string) {
	header, fenced := 0, false
	for i, line := range strings.Split(p.Text, "\n") {
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
			broken = append(broken, fmt.Sprint("line ", i+1))
		}
	}
	return broken
}

var (
	// unwrapped matches what cannot be wrapped: rows of tables, headings, pictures, comments.
	unwrapped = regexp.MustCompile(`^ *(\||#|!\[|<!--)`)
	listItem  = regexp.MustCompile(`^ *([-*]|\d+\.) `)
)

// tooWide returns the lines of prose that are longer than 100 characters and could be wrapped: code, tables, headings, pictures, comments
// and single words such as addresses are exempt.
func tooWide(p Page) (found []string) {
	prose := fence.ReplaceAllFunc([]byte(p.Text), func(block []byte) []byte {
		return bytes.Repeat([]byte("\n"), bytes.Count(block, []byte("\n")))
	})
	for i, line := range strings.Split(string(prose), "\n") {
		words := strings.TrimSpace(listItem.ReplaceAllString(line, ""))
		if utf8.RuneCountInString(line) > 100 && !unwrapped.MatchString(line) && strings.Contains(words, " ") {
			found = append(found, fmt.Sprint("line ", i+1))
		}
	}
	return found
}

var metricName = regexp.MustCompile(`\boutboard_[a-z_]+[a-z]\b`)

func missingMetrics(p Page, known []string) (missing []string) {
	for _, name := range metricName.FindAllString(p.Text, -1) {
		series := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_count"), "_sum"), "_bucket")
		if !slices.Contains(known, name) && !slices.Contains(known, series) {
			missing = append(missing, name)
		}
	}
	return missing
}

var (
	// testName is a test that a page names, and maybe the folder to which the page links beside it: "`TestX` in [test/e2e](../test/e2e)".
	testName = regexp.MustCompile(`\b(Test[A-Z][A-Za-z]{2,})\b(?:` + "`" + ` in \[[^\]]+\]\(([^)#]+)\))?`)
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
)

// missingTests returns the tests that the page names and that do not exist, or not in the folder to which it links. folders are those of
// the tests with each name.
func missingTests(p Page, folders map[string][]string) (missing []string) {
	for _, m := range testName.FindAllStringSubmatch(p.Text, -1) {
		found := folders[m[1]]
		if found == nil || m[2] != "" && !slices.Contains(found, path.Join(path.Dir(p.Path), m[2])) {
			missing = append(missing, m[0])
		}
	}
	return missing
}

var makeTarget = regexp.MustCompile("`make ([a-z][a-z-]*)")

// missingTargets returns the targets of make that the page has in sentences and blocks, and the Makefile does not.
func missingTargets(p Page, makefile string) (missing []string) {
	var targets []string
	for _, m := range makeTarget.FindAllStringSubmatch(p.Text, -1) {
		targets = append(targets, m[1])
	}
	blocks, _ := p.Blocks()
	for _, b := range blocks {
		calls, _ := b.MakeCalls()
		for _, call := range calls {
			targets = append(targets, strings.Fields(call)[1])
		}
	}
	for _, target := range targets {
		if !strings.Contains(makefile, "\n"+target+":") {
			missing = append(missing, target)
		}
	}
	return missing
}

// uncheckedBlocks returns the blocks, and the code elsewhere, that test/pages cannot check, or, if they are Go, that are in no file.
func uncheckedBlocks(p Page, code []string) (wrong []string) {
	blocks, elsewhere := p.Blocks()
	printed := false // whether the commands before are run
	for _, b := range blocks {
		complain := func(format string, args ...any) {
			wrong = append(wrong, fmt.Sprintf("line %d ", b.Line)+fmt.Sprintf(format, args...))
		}
		calls, rest := b.MakeCalls()
		if b.Unchecked == "" && len(calls) > 0 && rest != "" {
			complain("has other commands beside make")
		}
		switch {
		case !slices.Contains([]string{"yaml", "sh", "go", "text"}, b.Language):
			complain("is in %q", b.Language)
		case b.Unchecked != "" && ((b.Unchecked == "compared") != (b.Language == "text") || b.Language == "go"):
			complain("is marked as not %s", b.Unchecked)
		case b.Language == "text" && b.Unchecked == "" && (!printed || !b.Next):
			complain("has no output to compare with")
		case b.Language == "go":
			for declaration := range strings.SplitSeq(strings.TrimSpace(b.Text), "\n\n") {
				if !slices.ContainsFunc(code, func(text string) bool { return strings.Contains(text, declaration) }) {
					complain("is in no Go file:\n%s", declaration)
				}
			}
		}
		if b.Language != "text" {
			printed = b.Language == "sh" && b.Unchecked == "" && len(calls) == 0
		}
	}
	for _, line := range elsewhere {
		wrong = append(wrong, fmt.Sprintf("line %d is code outside a fenced block", line))
	}
	return wrong
}

// docs/alerts.md has a section for each alert, and for no other, and each alert links to its own.
func TestAlertsAreExplained(t *testing.T) {
	page, text := read(t, "docs/alerts.md"), read(t, "deploy/chart/monitoring/alerts.yaml")
	var alerts, sections []string
	for _, m := range regexp.MustCompile(`(?m)^ *- alert: (\S+)$`).FindAllStringSubmatch(text, -1) {
		alerts = append(alerts, m[1])
		anchor := "#" + strings.ToLower(m[1])
		if strings.Count(text, `runbook_url: "https://outboard.dev/docs/alerts.md`+anchor+`"`) != 1 {
			t.Errorf("%s does not link to its section", m[1])
		}
		if !strings.Contains(page[:strings.Index(page, "\n## ")], "["+m[1]+"]("+anchor+")") {
			t.Errorf("the table at the beginning of docs/alerts.md does not have %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile("(?m)^## (Outboard[A-Za-z]+)$").FindAllStringSubmatch(page, -1) {
		sections = append(sections, m[1])
	}
	slices.Sort(alerts)
	slices.Sort(sections)
	if len(alerts) == 0 || !slices.Equal(alerts, sections) {
		t.Errorf("the alerts are %q, and docs/alerts.md has %q", alerts, sections)
	}
}

var (
	// call is one of outboard, with what follows on the line.
	call     = regexp.MustCompile("\\boutboard (setup [a-z]+|[a-z]+)([^\n\"`,;|]*)")
	flagName = regexp.MustCompile(`--[a-z][a-z-]*[a-z]`)
)

// The flags of outboard that pages, messages and manifests name exist.
func TestFlagsExist(t *testing.T) {
	commands, checked := map[string]string{}, 0
	for section := range strings.SplitSeq(read(t, "docs/reference/commands.md"), "\n## ") {
		name, flags, _ := strings.Cut(section, "\n")
		commands[strings.TrimPrefix(name, "outboard ")] = flags
	}
	for _, suffix := range []string{".go", ".md", ".yaml"} {
		walk(t, suffix, func(file, text string) {
			for _, m := range call.FindAllStringSubmatch(text, -1) {
				flags := commands[m[1]]
				if flags == "" || file == "CHANGELOG.md" {
					continue
				}
				known := flagName.FindAllString(flags+commands["Flags of several commands"]+"--help", -1)
				for _, flag := range flagName.FindAllString(m[2], -1) {
					checked++
					if !slices.Contains(known, flag) {
						t.Errorf("%s: outboard %s has no flag %s", file, m[1], flag)
					}
				}
			}
		})
	}
	if checked < 50 {
		t.Errorf("there are only %d flags", checked)
	}
}

// docs/README.md leads to each page below docs.
func TestIndex(t *testing.T) {
	linked := map[string]bool{"README.md": true}
	for _, m := range link.FindAllStringSubmatch(read(t, "docs/README.md"), -1) {
		file, _, _ := strings.Cut(m[1], "#")
		linked[file] = true
	}
	for _, p := range Pages(t) {
		if page, ok := strings.CutPrefix(p.Path, "docs/"); ok && !linked[page] {
			t.Errorf("no task in docs/README.md has the page %s", page)
		}
	}
}
