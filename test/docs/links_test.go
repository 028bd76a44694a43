package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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

// brokenLinks returns the links of the page at path to missing files or headings. It skips links to
// other sites.
func brokenLinks(path, text string) []string {
	var broken []string
	for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		file, anchor, hasAnchor := strings.Cut(m[1], "#")
		if strings.Contains(file, "://") {
			continue
		}
		target := path
		if file != "" {
			target = filepath.Join(filepath.Dir(path), file)
		}
		if _, err := os.Stat(target); err != nil {
			broken = append(broken, m[1])
			continue
		}
		if !hasAnchor {
			continue
		}
		page, err := os.ReadFile(target)
		if err != nil || !slices.Contains(anchors(string(page)), anchor) {
			broken = append(broken, m[1])
		}
	}
	return broken
}

func TestBrokenLinks(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	text := "# Can it `read`, too?\n\n[a](#can-it-read-too) [b](other.md#part) [c](https://example.com/x#y) [d](gone.md) [e](other.md#gone) [f](#gone)\n" +
		"```sh\n# no heading\n[g](gone.md)\n```\n[h](#no-heading)\n"
	for path, text := range map[string]string{page: text, filepath.Join(dir, "other.md"): "# Other\n\n## Part\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := brokenLinks(page, text), []string{"gone.md", "other.md#gone", "#gone", "#no-heading"}; !slices.Equal(got, want) {
		t.Errorf("broken links are %q, want %q", got, want)
	}
}

// Every link of a page to a file or a heading of this repository has a target.
func TestLinks(t *testing.T) {
	root := filepath.Join("..", "..")
	for _, path := range pages(t, root) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range brokenLinks(path, string(text)) {
			t.Errorf("%s: the link to %s has no target", path, target)
		}
	}
}

var metricName = regexp.MustCompile(`\boutboard_[a-z_]+[a-z]\b`)

// Every metric that a page names exists.
func TestMetricNames(t *testing.T) {
	root := filepath.Join("..", "..")
	reference, err := os.ReadFile(filepath.Join(root, "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := metricName.FindAllString(string(reference), -1)
	if len(known) < 30 {
		t.Fatalf("docs/reference/metrics.md has only %d metrics", len(known))
	}
	for _, path := range pages(t, root) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range metricName.FindAllString(string(text), -1) {
			series := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_count"), "_sum"), "_bucket")
			if !slices.ContainsFunc(known, func(k string) bool { return k == name || k == series }) {
				t.Errorf("%s: there is no metric %s", path, name)
			}
		}
	}
}

// docs/alerts.md has a section for each alert, and for no other, and each alert links to its own.
func TestAlertsAreExplained(t *testing.T) {
	root := filepath.Join("..", "..")
	read := func(elem ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{root}, elem...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page, text := read("docs", "alerts.md"), read("deploy", "chart", "monitoring", "alerts.yaml")
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

// docs/README.md leads to each page below docs.
func TestIndex(t *testing.T) {
	docs := filepath.Join("..", "..", "docs")
	index, err := os.ReadFile(filepath.Join(docs, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string]bool{"README.md": true}
	for _, m := range link.FindAllStringSubmatch(string(index), -1) {
		file, _, _ := strings.Cut(m[1], "#")
		linked[file] = true
	}
	for _, path := range pages(t, docs) {
		if page, err := filepath.Rel(docs, path); err != nil || !linked[filepath.ToSlash(page)] {
			t.Errorf("no task in docs/README.md has the page %s (%v)", page, err)
		}
	}
}
