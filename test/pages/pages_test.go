// Package pages runs the documentation: the program that reads a YAML block accepts it, and every command runs and prints the text below
// it. The static checks of the pages, also of what is not run here, are in test/docs.
package pages

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
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
	"outboard.dev/outboard/test/docs"
	"outboard.dev/outboard/test/stage"
)

var only = flag.String("pages", "", "comma-separated paths of the pages to run, relative to the root; empty for all")

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
	for _, p := range selected(t) {
		runner.t = t
		runner.open(p)
		blocks, _ := p.Blocks()
		for _, b := range blocks {
			if calls, _ := b.MakeCalls(); b.Unchecked != "" || len(calls) > 0 {
				continue
			}
			t.Run(b.String(), func(t *testing.T) {
				runner.t = t
				b.Text = fixedPort.ReplaceAllStringFunc(b.Text, runner.free)
				switch b.Language {
				case "yaml":
					runner.yaml(b)
				case "sh":
					runner.shell(b)
				case "text":
					runner.output(b)
				}
			})
		}
	}
}

// installing is the page that installs what others need.
const installing = "docs/install.md"

// selected returns the page that installs what others need, and the pages of the flag in the order of their paths.
func selected(t *testing.T) []docs.Page {
	var first, found []docs.Page
	wanted := strings.Split(*only, ",")
	for _, page := range wanted {
		if _, err := os.Stat(filepath.Join(docs.Root, page)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range docs.Pages(t) {
		switch {
		case p.Path == installing:
			first = append(first, p)
		case *only == "" || slices.Contains(wanted, p.Path):
			found = append(found, p)
		}
	}
	return append(first, found...)
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

	printed string            // what the commands of the page printed last
	ports   map[string]string // of the page
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

// open creates the objects that a page requires, from the file of its name in testdata/.
func (r *runner) open(p docs.Page) {
	r.ports = map[string]string{}
	objects := filepath.Join("testdata", strings.TrimSuffix(filepath.Base(p.Path), ".md")+".yaml")
	if _, err := os.Stat(objects); err != nil {
		return
	}
	if out, err := r.Kubectl(r.ctx, "create", "-f", objects).CombinedOutput(); err != nil {
		r.t.Fatalf("%v\n%s", err, out)
	}
}

// fixedPort matches the ports on which commands of pages listen on this machine.
var fixedPort = regexp.MustCompile(`\b18\d{3}\b`)

// free returns the port that stands for the one of the page, which may be taken on this machine.
func (r *runner) free(port string) string {
	if r.ports[port] == "" {
		address, err := r.HoldAddress()
		if err != nil {
			r.t.Fatal(err)
		}
		_, r.ports[port], _ = strings.Cut(address, ":")
	}
	return r.ports[port]
}

// yaml checks a document with its reader: Outboard's configuration with outboard, kube-scheduler's
// with kube-scheduler, and objects with the API server.
func (r *runner) yaml(b docs.Block) {
	for doc := range strings.SplitSeq(b.Text, "\n---\n") {
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

// shell runs the commands with read access to the checkout's own files, with outboard, kubectl
// (see TestMain) and kube-scheduler on the PATH, and with the stage as kubectl's cluster.
func (r *runner) shell(b docs.Block) {
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
	scheduler, err := r.SchedulerPath()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.ctx, "bash", "-euo", "pipefail", "-c", b.Text)
	cmd.Dir = r.dir
	cmd.WaitDelay = 30 * time.Second // a program that the block left running may hold its output
	cmd.Env = append(os.Environ(),
		"PATH="+r.tools+":"+filepath.Dir(r.Binary())+":"+filepath.Dir(scheduler)+":"+os.Getenv("PATH"),
		"KUBECONFIG="+r.Kubeconfig(),
		realKubectl+"="+r.KubectlPath(), outboardPath+"="+r.Binary(), outboardAdmin+"="+r.any.Admin, outboardLog+"="+log,
	)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Errorf("%v\n%s", err, out)
	}
	r.printed = string(out)
}

// output finds every line of the block, in this order, in the output of the commands before it,
// except lines that mark omissions.
func (r *runner) output(b docs.Block) {
	rest := r.printed
	for line := range strings.Lines(b.Text) {
		if line == "…\n" {
			continue
		}
		var ok bool
		if _, rest, ok = strings.Cut("\n"+rest, "\n"+line); !ok {
			r.t.Fatalf("%q is not in the output, or not in this order:\n%s", line, r.printed)
		}
	}
}
