package doctor

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"outboard.dev/outboard/internal/wiring"
)

// maxCorrections bounds how often Fix corrects a file: a correction may reveal other findings.
const maxCorrections = 500

// Fixed is a corrected file.
type Fixed struct {
	Data []byte
	// Corrected are the findings that Fix has corrected, with the lines and the fields of the former file, by line. Line is 0 if only a
	// correction before revealed the finding: these are last.
	Corrected []Finding
	// Left are the findings of the corrected file, with its lines. They say why Fix does not correct them.
	Left []Finding
}

// Fix corrects the file. It makes one correction at a time, and keeps only those after
// which the file has fewer findings with that code, and neither more errors than before nor a new one for which kube-scheduler does not
// start, nor managed resources that Outboard does not allocate. If the corrections contradict each other, the file stays as it is.
func Fix(in Input) (*Fixed, error) {
	c, err := examine(in)
	if err != nil {
		return nil, err
	}
	next, corrected, reasons := c.fix()
	for i, f := range corrected {
		corrected[i].Line = 0
		if j := slices.IndexFunc(c.findings, func(former Finding) bool { return former.key() == f.key() }); j >= 0 {
			corrected[i].Line = c.findings[j].Line
		}
	}
	slices.SortStableFunc(corrected, func(a, b Finding) int {
		return cmp.Compare(uint(a.Line)-1, uint(b.Line)-1) // 0 is the largest
	})
	return &Fixed{next.Data, corrected, next.report(reasons)}, nil
}

// fix returns the examination of the corrected file, the findings that it corrected, and why the corrections that the file still needs
// are not made, by [Finding.key].
func (c *checker) fix() (now *checker, corrected []Finding, reasons map[string]string) {
	now, reasons = c, map[string]string{}
	var removed []string
	for range maxCorrections {
		i := slices.IndexFunc(now.findings, func(f Finding) bool { return f.Fixable && reasons[f.key()] == "" })
		if i < 0 {
			return now, corrected, reasons
		}
		f := now.findings[i]
		if next, why := now.correct(f); why != "" {
			reasons[f.key()] = why
		} else {
			f.Field = formerField(f.Field, removed)
			now, corrected, reasons = next, append(corrected, f), map[string]string{}
			for _, e := range f.edits {
				if e.op == removeField && strings.HasSuffix(e.path, "]") {
					removed = append(removed, e.path)
				}
			}
		}
	}
	for _, f := range c.findings {
		reasons[f.key()] = "it contradicts other corrections"
	}
	return c, nil, reasons
}

// formerField returns the path that a field had before items of lists were removed. Each item has the path that it had when it was
// removed, the earliest first.
func formerField(path string, removed []string) string {
	for _, item := range slices.Backward(removed) {
		list, index := item[:strings.LastIndexByte(item, '[')+1], 0
		rest, ok := strings.CutPrefix(path, list)
		number, rest, _ := strings.Cut(rest, "]")
		at, err := strconv.Atoi(number)
		if _, _ = fmt.Sscanf(item[len(list):], "%d]", &index); ok && err == nil && at >= index {
			path = fmt.Sprintf("%s%d]%s", list, at+1, rest)
		}
	}
	return path
}

func (f *Finding) key() string { return f.Code + " " + f.Field }

// report returns the findings in the order for readers, with the reasons why Fix does not make corrections.
func (c *checker) report(reasons map[string]string) []Finding {
	all := c.ordered()
	for i := range all {
		if f := &all[i]; f.Fixable && reasons[f.key()] != "" {
			f.Fixable = false
			f.Fix += "; --fix does not, because " + reasons[f.key()]
		}
	}
	return all
}

// correct returns the examination of the file with the correction of one finding, or why it is not made.
func (c *checker) correct(f Finding) (next *checker, why string) {
	in := c.Input
	var err error
	if in.Data, err = c.edited(f.edits); err != nil {
		return nil, err.Error()
	}
	if bytes.Equal(in.Data, c.Data) {
		return nil, "another error is in the way"
	}
	if next, err = examine(in); err != nil {
		return nil, err.Error()
	}
	// After any correction, the running kube-scheduler has loaded another file.
	severe := func(f *Finding) bool { return f.Severity == Error && f.Code != "SchedulerNotRestarted" }
	// While its calls fail, the pods of an extender wait.
	unclaimed := func(g *Finding) bool {
		return f.Code == "VerbNotServed" && g.Code == "ResourceNotAllocated" && extenderOf(g.Field) == extenderOf(f.Field)
	}
	same := func(g *Finding) bool { return g.Code == f.Code }
	switch {
	case next.doc.config.Kind == "" && c.doc.config.Kind != "":
		return nil, "the file would not be readable"
	case next.count(refused) > c.count(refused), next.count(severe) > c.count(severe):
		return nil, "the file would have another error: " + next.newer(c)
	case next.count(unclaimed) > 0:
		return nil, "Outboard would then bind pods that request the managed resources, without claims: restore the profile for them, or remove the extender"
	case next.count(same) >= c.count(same):
		return nil, "the problem would remain"
	}
	return next, ""
}

// extenderOf returns the extender of a field of it, such as extenders[1].
func extenderOf(field string) string {
	name, _, _ := strings.Cut(field, ".")
	return name
}

func refused(f *Finding) bool { return f.refused }

func (c *checker) count(counted func(*Finding) bool) (n int) {
	for i := range c.findings {
		if counted(&c.findings[i]) {
			n++
		}
	}
	return n
}

// newer describes an error that the former examination did not have.
func (c *checker) newer(former *checker) string {
	for _, f := range c.findings {
		known := slices.ContainsFunc(former.findings, func(g Finding) bool { return g.key() == f.key() && g.Severity == f.Severity })
		if f.Severity == Error && !known {
			return fmt.Sprintf("%s: %s", cmp.Or(f.Field, f.Code), f.Message)
		}
	}
	return "the same once more"
}

// edited returns the file with edits of the configuration.
func (c *checker) edited(edits []edit) ([]byte, error) {
	text := c.doc.source.Data
	document, err := parseYAML(text)
	if err != nil {
		return nil, err
	}
	if edits[0].op == convert {
		result, _, err := wiring.Migrate(c.File, text, wiring.Options{})
		if err != nil {
			return nil, err
		}
		return replaced(&c.doc.source.Text, []byte(lines(commentsOf(document), string(result))))
	}
	document.Content[0] = plain(document.Content[0])
	for _, e := range edits {
		if err := e.apply(document.Content[0]); err != nil {
			return nil, err
		}
	}
	result, err := encode(document, text)
	if err != nil {
		return nil, err
	}
	if lines := inLines(text, edits, result); lines != nil {
		result = lines
	}
	return replaced(&c.doc.source.Text, result)
}
