// Package docs tests the content of the documentation: the program that reads a YAML block accepts
// it, every command runs and prints the text below it, and every piece of Go is in a compiled file.
// A block for which this is impossible follows a comment with the reason:
//
//	<!-- not run: it takes an hour -->
//	<!-- not compared: times differ -->
package docs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// block is a fenced block of a page.
type block struct {
	page, language, text string
	line                 int
	next                 bool   // only an empty line stands between it and the block before
	unchecked            string // "run" or "compared" if a comment says that it is not; else ""
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// languages are the permitted languages of a block. Text is for the output of programs, and a text
// block right after commands has their output.
var languages = []string{"yaml", "sh", "go", "text"}

var (
	fence     = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	unchecked = regexp.MustCompile(`<!-- not (run|compared): \S.* -->\n$`)
	// unfenced matches code that Markdown supports and fence does not: indented after an empty
	// line, or with another kind of fence.
	unfenced = regexp.MustCompile("(?m)(?:\\A|^[ \t]*\n)(?: {4}|\t)[ \t]*\\S.*$|^.*(?:```|~~~).*$")
)

// blocksOf returns the blocks of a page, and the lines of code outside blocks.
func blocksOf(page string, text []byte) (found []block, elsewhere []int) {
	rest, end := bytes.Clone(text), -1
	for _, m := range fence.FindAllSubmatchIndex(text, -1) {
		b := block{
			page: page, language: string(text[m[2]:m[3]]), text: string(text[m[4]:m[5]]),
			line: 1 + bytes.Count(text[:m[0]], []byte("\n")),
			next: end > 0 && len(bytes.TrimSpace(text[end:m[0]])) == 0,
		}
		if mark := unchecked.FindSubmatch(text[:m[0]]); mark != nil {
			b.unchecked = string(mark[1])
		}
		found, end = append(found, b), m[1]
		for i := m[0]; i < m[1]; i++ {
			if rest[i] != '\n' {
				rest[i] = '-'
			}
		}
	}
	for _, m := range unfenced.FindAllIndex(rest, -1) {
		elsewhere = append(elsewhere, 1+bytes.Count(rest[:m[1]], []byte("\n")))
	}
	return found, elsewhere
}

// pages returns the paths of all pages below root.
func pages(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir() && filepath.Ext(path) == ".md":
			found = append(found, path)
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata"):
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func blocks(t *testing.T, root string) []block {
	t.Helper()
	var found []block
	for _, path := range pages(t, root) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		ofPage, elsewhere := blocksOf(page, text)
		for _, line := range elsewhere {
			t.Errorf("%s:%d: code outside a fenced block, which is not checked", page, line)
		}
		found = append(found, ofPage...)
	}
	if len(found) == 0 {
		t.Fatalf("no page below %s has a block", root)
	}
	return found
}

// blocksOf finds every way to write code in Markdown.
func TestBlocks(t *testing.T) {
	const page = "# Title\n\n```sh\nls\n```\n\n```text\na\n    b\n```\n\nText:\n\n    indented\n      more\n\n" +
		"<!-- not run: it takes an hour -->\n```sh\nsleep 3600\n```\n\n* item\n\n  ```sh\n  ls\n  ```\n\n\ttab\n\n~~~\nx\n~~~\n* a list\n    goes on\n"
	found, elsewhere := blocksOf("page.md", []byte(page))
	want := []block{
		{page: "page.md", language: "sh", text: "ls\n", line: 3},
		{page: "page.md", language: "text", text: "a\n    b\n", line: 7, next: true},
		{page: "page.md", language: "sh", text: "sleep 3600\n", line: 18, unchecked: "run"},
	}
	if !slices.Equal(found, want) {
		t.Errorf("blocks are %+v", found)
	}
	if !slices.Equal(elsewhere, []int{14, 24, 26, 28, 30, 32}) {
		t.Errorf("the lines of code outside blocks are %v", elsewhere)
	}
}

func TestDocumentation(t *testing.T) {
	ctx := untilTimeout(t)
	s, err := stage.Set(ctx, stage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	runner := newRunner(t, ctx, s)
	page := ""
	for _, b := range blocks(t, s.Root) {
		if b.page != page {
			page, runner.t = b.page, t
			runner.prepare(page)
		}
		t.Run(b.String(), func(t *testing.T) {
			runner.t = t
			if b.language != "text" {
				runner.ran = false
			}
			if b.unchecked != "" {
				if (b.unchecked == "compared") != (b.language == "text") || b.language == "go" {
					t.Errorf("a block in %q is marked as not %s", b.language, b.unchecked)
				}
				return
			}
			switch b.language {
			case "yaml":
				runner.yaml(b)
			case "sh":
				runner.shell(b)
			case "text":
				runner.output(b)
			case "go":
				runner.golang(b)
			default:
				if !slices.Contains(languages, b.language) {
					t.Errorf("a block in %q: must be one of %v", b.language, languages)
				}
			}
		})
	}
}

// untilTimeout returns a context that ends a minute before the timeout of go test, so that a command that hangs fails its own test,
// with what it has printed. No command has a shorter limit, because some compile for minutes, and the longer the more runs beside them.
func untilTimeout(t *testing.T) context.Context {
	deadline, ok := t.Deadline()
	if !ok {
		return t.Context()
	}
	ctx, cancel := context.WithDeadline(t.Context(), deadline.Add(-time.Minute))
	t.Cleanup(cancel)
	return ctx
}

type runner struct {
	*stage.Stage
	t     *testing.T
	ctx   context.Context
	dir   string
	tools string          // the directory with kubectl, outboard and sleep, as TestMain describes them
	any   *stage.Outboard // for scheduler configurations to point at, and for kubectl to reach

	ran     bool   // the block before was run
	printed string // what it printed
}

func newRunner(t *testing.T, ctx context.Context, s *stage.Stage) *runner {
	o, err := s.StartOutboard(ctx, `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
profiles: [{policies: [{type: ImageLocality}, {type: GPUMemory}]}]
serving: {tls: {certFile: x, keyFile: x, clientCAFile: x, allowedClients: [kube-scheduler]}}
`)
	if err != nil {
		t.Fatal(err)
	}
	checkRunningVersion(t, ctx, s.Binary(), o)
	tools, self := t.TempDir(), os.Args[0]
	if self, err = filepath.Abs(self); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubectl", "outboard", "sleep"} {
		if err := os.Symlink(self, filepath.Join(tools, name)); err != nil {
			t.Fatal(err)
		}
	}
	return &runner{Stage: s, t: t, ctx: ctx, dir: t.TempDir(), tools: tools, any: o}
}

// checkRunningVersion checks that the log and the metrics name the version that the command prints.
func checkRunningVersion(t *testing.T, ctx context.Context, binary string, o *stage.Outboard) {
	t.Helper()
	var v struct{ Version, Commit string }
	printed, err := exec.CommandContext(ctx, binary, "version", "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(printed, &v)
	}
	if err != nil || v.Version == "" || v.Commit == "" {
		t.Fatalf("%v: %s", err, printed)
	}
	if want := fmt.Sprintf(`"msg":"starting","version":%q,"commit":%q,`, v.Version, v.Commit); !strings.Contains(o.Log(), want) {
		t.Errorf("the log does not say %q:\n%s", want, o.Log())
	}
	metrics, err := http.Get(o.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer metrics.Body.Close()
	text, err := io.ReadAll(metrics.Body)
	if want := fmt.Sprintf(`outboard_build_info{goversion=%q,revision=%q,version=%q} 1`, runtime.Version(), v.Commit, v.Version); err != nil || !bytes.Contains(text, []byte(want)) {
		t.Errorf("the metrics have no line %s (%v)", want, err)
	}
}

// prepare creates the objects that a page requires, from the file of its name in testdata/.
func (r *runner) prepare(page string) {
	objects := filepath.Join("testdata", strings.TrimSuffix(filepath.Base(page), ".md")+".yaml")
	if _, err := os.Stat(objects); err != nil {
		return
	}
	if out, err := r.Kubectl(r.ctx, "create", "-f", objects).CombinedOutput(); err != nil {
		r.t.Fatalf("%v\n%s", err, out)
	}
}

// yaml checks a document with its reader: Outboard's configuration with outboard, kube-scheduler's
// with kube-scheduler, and objects with the API server.
func (r *runner) yaml(b block) {
	for doc := range strings.SplitSeq(b.text, "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			r.t.Fatal(err)
		}
		switch kind.Kind {
		case "OutboardConfiguration":
			o, err := r.StartOutboard(r.ctx, doc)
			if err != nil {
				r.t.Fatal(err)
			}
			o.Kill()
		case "KubeSchedulerConfiguration":
			config, err := r.any.SchedulerConfig(doc)
			if err != nil {
				r.t.Fatal(err)
			}
			scheduler, err := r.StartScheduler(r.ctx, controlplane.SchedulerOptions{Config: config})
			if err != nil {
				r.t.Fatal(err)
			}
			scheduler.Kill()
		case "":
			r.t.Errorf("is not a complete document: it has no kind")
		default:
			kubectl := r.Kubectl(r.ctx, "create", "--dry-run=server", "-f", "-")
			kubectl.Stdin = strings.NewReader(doc)
			if out, err := kubectl.CombinedOutput(); err != nil {
				r.t.Errorf("%v: %s", err, out)
			}
		}
	}
}

var makeCall = regexp.MustCompile(`(?m)^make ([a-z-]+)( [A-Z]+=(?:'[^']*'|\S+))?( +#.*)?$`)

// shell runs the commands with read access to the checkout's own files, with outboard, kubectl
// (see TestMain) and kube-scheduler on the PATH, and with the stage as kubectl's cluster. It does not run a block of make targets,
// because one of them runs this test; the targets must exist.
func (r *runner) shell(b block) {
	if targets := makeCall.FindAllStringSubmatch(b.text, -1); targets != nil {
		makefile, err := os.ReadFile(filepath.Join(r.Root, "Makefile"))
		if err != nil {
			r.t.Fatal(err)
		}
		for _, target := range targets {
			if !bytes.Contains(makefile, []byte("\n"+target[1]+":")) {
				r.t.Errorf("there is no make target %q", target[1])
			}
		}
		if rest := strings.TrimSpace(makeCall.ReplaceAllString(b.text, "")); rest != "" {
			r.t.Errorf("other commands beside make: %q", rest)
		}
		return
	}
	// The directory stands both for the checkout and for the folder that contains it.
	for link, target := range map[string]string{"deploy": "deploy", "examples": "examples", "outboard": "."} {
		if err := os.Symlink(filepath.Join(r.Root, target), filepath.Join(r.dir, link)); err != nil && !os.IsExist(err) {
			r.t.Fatal(err)
		}
	}
	log := filepath.Join(r.tools, "outboard.log")
	if err := os.WriteFile(log, []byte(r.any.Log()), 0o600); err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.ctx, "bash", "-euo", "pipefail", "-c", b.text)
	cmd.Dir = r.dir
	cmd.WaitDelay = 30 * time.Second // a program that the block left running may hold its output
	cmd.Env = append(os.Environ(),
		"PATH="+r.tools+":"+filepath.Dir(r.Binary())+":"+filepath.Dir(r.KubectlPath())+":"+os.Getenv("PATH"),
		"KUBECONFIG="+r.Kubeconfig(),
		realKubectl+"="+r.KubectlPath(), outboardPath+"="+r.Binary(), outboardAdmin+"="+r.any.Admin, outboardLog+"="+log,
	)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Errorf("%v\n%s", err, out)
	}
	r.ran, r.printed = true, string(out)
}

// output finds every line of the block, in this order, in the output of the commands before it,
// except lines that mark omissions.
func (r *runner) output(b block) {
	if !r.ran || !b.next {
		r.t.Fatal("has no output to compare with: it does not follow commands that run, and no comment explains why")
	}
	rest := r.printed
	for line := range strings.Lines(b.text) {
		if line == "…\n" {
			continue
		}
		var ok bool
		if _, rest, ok = strings.Cut("\n"+rest, "\n"+line); !ok {
			r.t.Fatalf("%q is not in the output, or not in this order:\n%s", line, r.printed)
		}
	}
}

// golang finds the declarations of the block, one by one, in the checkout's Go files.
func (r *runner) golang(b block) {
	for declaration := range strings.SplitSeq(strings.TrimSpace(b.text), "\n\n") {
		if !slices.ContainsFunc(r.goFiles(), func(text string) bool { return strings.Contains(text, declaration) }) {
			r.t.Errorf("is in no Go file of the checkout:\n%s", declaration)
		}
	}
}

func (r *runner) goFiles() []string {
	var texts []string
	err := filepath.WalkDir(r.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		texts = append(texts, string(text))
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return texts
}
