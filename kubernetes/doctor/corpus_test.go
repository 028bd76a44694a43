package doctor

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write what kube-scheduler says about the corpus to testdata")

const root = "../.."

// sampleFile is a file of the corpus, with the configuration of Outboard that it is for, if there is one.
type sampleFile struct{ name, content, outboard string }

// archived returns the files of an archive, of which outboard.yaml goes with all others.
func archived(tb testing.TB, name string) (all []sampleFile) {
	tb.Helper()
	archive, err := txtar.ParseFile(name)
	if err != nil {
		tb.Fatal(err)
	}
	outboard := ""
	for _, f := range archive.Files {
		if f.Name == "outboard.yaml" {
			outboard = string(f.Data)
			continue
		}
		all = append(all, sampleFile{strings.TrimSuffix(filepath.Base(name), ".txtar") + "/" + f.Name, string(f.Data), outboard})
	}
	return all
}

// matching returns the files that match a pattern; it fails the test if there are none.
func matching(tb testing.TB, pattern string) []string {
	tb.Helper()
	names, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
	if err != nil || len(names) == 0 {
		tb.Fatalf("%s: no files: %v", pattern, err)
	}
	return names
}

// corpus returns the files that people wrote: those of testdata, of five tutorials, of the documentation, and of the examples.
func corpus(tb testing.TB) []sampleFile {
	tb.Helper()
	all := slices.Concat(archived(tb, "testdata/mistakes.txtar"), archived(tb, "testdata/yaml.txtar"), archived(tb, "testdata/tutorials.txtar"))
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		return string(text)
	}
	for _, name := range matching(tb, "examples/from-the-tutorials/*/original/*") {
		tutorial := filepath.Base(filepath.Dir(filepath.Dir(name)))
		all = append(all, sampleFile{"tutorials/" + tutorial + "/" + filepath.Base(name), read(name), ""})
	}
	for _, pattern := range []string{"examples/*/scheduler.yaml", "examples/from-the-tutorials/*/scheduler.yaml"} {
		for _, name := range matching(tb, pattern) {
			dir := filepath.Dir(name)
			all = append(all, sampleFile{"examples/" + filepath.Base(dir), read(name), read(filepath.Join(dir, "outboard.yaml"))})
		}
	}
	for i, m := range block.FindAllStringSubmatch(read(filepath.Join(root, "docs", "check.md")), -1) {
		all = append(all, sampleFile{fmt.Sprintf("docs/check.md/%d", i), m[1], ""})
	}
	return all
}

// block is a configuration in a page.
var block = regexp.MustCompile(`(?s)(?:^|\n)(?:cat > scheduler.yaml <<'END'|` + "```yaml" + `)\n(apiVersion: kubescheduler.*?\n)(?:END|` + "```" + `)\n`)

// inside is a configuration in a file for a machine or a cluster.
var inside = regexp.MustCompile(`(?m)^(?:version: v1alpha1|{"version": "v1alpha1".*|kind: KubeadmControlPlane|#cloud-config)$`)

// ofTheDoctor returns the configurations in the test data of package wiring/doctor.
func ofTheDoctor(tb testing.TB) (all []sampleFile) {
	tb.Helper()
	for _, name := range matching(tb, "internal/wiring/doctor/testdata/*.txtar") {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		outboard := ""
		if i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "outboard.yaml" }); i >= 0 {
			outboard = string(archive.Files[i].Data)
		}
		f := archive.Files[0]
		if inside.Match(f.Data) {
			continue // kube-scheduler reads a part of it
		}
		all = append(all, sampleFile{"internal/wiring/doctor/testdata/" + filepath.Base(name) + "/" + f.Name, string(f.Data), outboard})
	}
	return all
}

// TestCorpus judges the corpus. The file testdata/kube-scheduler.txt has what kube-scheduler says about each file.
func TestCorpus(t *testing.T) {
	j := newJudge(t)
	var says strings.Builder
	for _, f := range corpus(t) {
		j.sample(f)
		inner, _ := configurationIn([]byte(j.here(f.content)))
		err := load(t, inner)
		fmt.Fprintf(&says, "%s: %s\n", f.name, j.verdict(err))
	}
	j.report()
	const golden = "testdata/kube-scheduler.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(says.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), says.String()); diff != "" {
		t.Errorf("what kube-scheduler says differs from %s (-want +got); run with -update:\n%s", golden, diff)
	}
}

// TestDataOfTheDoctor judges the test data of package wiring/doctor.
func TestDataOfTheDoctor(t *testing.T) {
	j := newJudge(t)
	for _, f := range ofTheDoctor(t) {
		j.sample(f)
	}
	j.report()
}

func (j *judge) sample(f sampleFile) {
	if f.outboard == "" {
		j.judge(f.name, j.here(f.content), nil)
		return
	}
	j.judge(f.name, j.here(f.content), j.configuration(f.outboard))
}

// verdict returns in one line what kube-scheduler says.
func (j *judge) verdict(err error) string {
	if err == nil {
		return "starts"
	}
	text, _, _ := strings.Cut(err.Error(), " is missing in '") // continues with the file
	text, _, _ = strings.Cut(text, " at input byte ")          // continues with a number that depends on the length of the directory's name
	return strings.Join(strings.Fields(strings.ReplaceAll(text, j.dir, "/tls")), " ")
}
