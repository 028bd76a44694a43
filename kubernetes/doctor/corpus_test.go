package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/wiring/doctor"
	"outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
)

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
			if filepath.Base(dir) == "own-policy" { // which has another program
				continue
			}
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

// Where kube-scheduler does not start because of an extender or of what the file is, the doctor says so, and names the same field.
// Where it starts, the doctor does not say otherwise.
func TestCorpus(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir)
	here := func(text string) string { return strings.ReplaceAll(text, "/tls/", dir+"/") }
	for _, f := range slices.Concat(corpus(t), ofTheDoctor(t)) {
		t.Run(f.name, func(t *testing.T) {
			in := doctor.Input{File: "scheduler.yaml", Data: []byte(here(f.content)), ReadFile: os.ReadFile, ReadConfigFile: os.ReadFile, Now: time.Now()}
			if f.outboard != "" {
				c, err := config.ParseManifest("outboard.yaml", []byte(here(f.outboard)), config.Types{Policies: standard.Types(), Signals: signals.Types()})
				if err != nil {
					t.Fatal(err)
				}
				in.Config, in.ConfigFile = c, "outboard.yaml"
			}
			findings, _, err := doctor.Check(in)
			if err != nil {
				t.Fatal(err)
			}
			judge(t, findings, load(t, configurationIn(in.Data)))
		})
	}
}
