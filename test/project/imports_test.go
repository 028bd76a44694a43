// Package project holds tests about the project itself: which package may import which, whether
// other modules can import it, and the required content of files.
package project

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "outboard.dev/outboard"

// rules limit the direct and indirect dependencies of packages. Every rule whose pattern matches a
// package's path below the module, without internal/, applies to it.
var rules = []struct {
	packages string // a path.Match pattern, or prefix/... for a subtree
	may      []string
	why      string
}{
	{"snapshot", nil, "the view stands below everything"},
	{"policy", []string{"snapshot"}, "the contract of a policy knows the view only"},
	{"policy/allocations", []string{"snapshot", "policy"}, "what policies with allocations have in common knows none of them"},
	{"policy/fields", nil, "values know nothing of what they are for"},
	{"decision", nil, "records are plain data"},
	{"engine", []string{"snapshot", "policy", "decision"}, "the engine does no I/O"},
	{"placement", nil, "arithmetic knows nothing of pods and nodes"},
	{"firstfit", []string{"snapshot"}, "what kube-scheduler allocates depends on the view alone"},
	{"policies/*", []string{"gpushare", "snapshot", "policy", "policy/allocations", "policy/fields", "placement", "placement/strategy", "firstfit", "policies/*"}, "a policy knows the contract only"},
	{"placement/strategy", []string{"snapshot", "policy", "placement"}, "a strategy rates places, and knows no protocol of GPUs"},
	{"callmetrics", []string{"lastevent", "decision"}, "verbs are counted whoever calls"},
	{"binder", []string{"snapshot", "policy", "decision", "engine"}, "binding pods depends on no wire and no client"},
	{"extender", []string{"lastevent", "throttle", "binder", "callmetrics", "snapshot", "policy", "decision", "engine", "kubescheduler", "extender/wire"}, "the wire knows neither configuration nor cluster"},
	{"ledger", []string{"snapshot", "policy"}, "the ledger knows no policy in particular, and no client"},
	{"ledger/audit", []string{"snapshot", "policy", "policy/fields", "ledger"}, "the audit shares no code with those it audits"},
	{"kubescheduler", []string{"snapshot"}, "what kube-scheduler does depends on nodes and pods alone"},
	{"whatif", []string{"snapshot", "policy", "policy/fields", "decision", "engine", "firstfit", "kubescheduler"}, "what would help a pod depends on the view and the policies alone"},
	{"simulate", []string{"gpushare", "snapshot", "policy", "decision", "engine", "binder", "firstfit", "ledger", "kubescheduler"}, "a simulation needs no cluster, and no particular policy"},
	{"cluster", []string{"throttle", "cluster/assumption", "binder", "engine", "decision", "snapshot", "policy", "ledger"}, "the cluster is a source of views"},
	{"cluster/assumption", []string{"snapshot"}, "the states of a pod depend on pods alone"},
	{"config", []string{"decision", "snapshot", "policy", "policy/fields", "signal", "config/manifest", "config/strictyaml"}, "the configuration knows which policies and sources there are from whoever loads it"},
	{"signal", []string{"snapshot", "policy", "policy/fields"}, "the contract of a source knows none in particular"},
	{"signals/poll", []string{"signal", "snapshot", "policy", "policy/fields"}, "what reads sources knows none in particular"},
	{"requeue", []string{"snapshot", "policy", "decision", "engine", "kubescheduler"}, "requeuing depends on what rejects pods, and on no client"},
	{"pending", []string{"snapshot", "policy", "policy/fields", "decision", "engine", "kubescheduler", "requeue", "config", "config/manifest", "config/strictyaml", "signal"}, "why a pod waits depends on what is recorded, and on no request"},
	{"clustermetrics", []string{"snapshot", "policy", "policy/fields", "decision", "engine", "kubescheduler", "pending", "requeue", "ledger", "ledger/audit", "config", "config/manifest", "config/strictyaml", "signal"}, "the survey reads caches, and makes no request"},
	{"signals/source/metricsapi", []string{"signal", "signals/jsondoc", "snapshot", "policy", "policy/fields"}, "a source knows what it reads"},
	{"signals/source/remote", []string{"signal", "snapshot", "policy", "policy/fields"}, "another cluster is a source of numbers, not of views"},
	{"signals/format", []string{"signal", "signals/jsondoc", "snapshot", "policy", "policy/fields", "config/strictyaml"}, "documents are bytes, wherever they come from"},
	{"signals/httpclient", []string{"signal", "snapshot", "policy", "policy/fields"}, "requests know nothing of what is asked"},
	{"signals/source/prometheus", []string{"signal", "signals/httpclient", "signals/jsondoc", "snapshot", "policy", "policy/fields"}, "a source knows what it reads"},
	{"signals/source/httpdoc", []string{"signal", "signals/httpclient", "signals/format", "signals/jsondoc", "snapshot", "policy", "policy/fields", "config/strictyaml"}, "a source knows what it reads"},
	{"signals/source/file", []string{"signal", "signals/format", "signals/jsondoc", "snapshot", "policy", "policy/fields", "config/strictyaml"}, "a source knows what it reads"},
	{"signals/jsondoc", []string{"signal", "snapshot", "policy", "policy/fields"}, "documents only"},
	{"portforward", nil, "connections to pods only"},
	{"gpushare", nil, "names only"},
	{"throttle", nil, "records are throttled whatever they say"},
	{"lastevent", nil, "events are counted whatever they are"},
	{"histogram", nil, "durations are counted whatever takes them"},
	{"server", []string{"lastevent", "filewatch", "throttle"}, "the server knows nothing of scheduling"},
	{"filewatch", nil, "files only"},
	{"atomicfile", nil, "files only"},
	{"certs", []string{"atomicfile"}, "certificates only"},
	{"wiring", []string{"gpushare", "config", "config/manifest", "config/strictyaml", "decision", "policy", "policy/fields", "signal", "snapshot"}, "kube-scheduler's configuration follows from ours"},
	{"wiring/doctor", []string{"wiring", "certs", "atomicfile", "config", "config/manifest", "config/strictyaml", "decision", "policy", "policy/fields", "signal", "snapshot"}, "files are judged by what they say"},
}

// only lists which packages may import the named packages directly.
var only = []struct {
	imported string
	by       []string
}{
	{"k8s.io/kube-scheduler/extender/...", []string{"internal/extender", "internal/extender/...", "test/verify"}},
	{"k8s.io/client-go/kubernetes/...", []string{"internal/cluster", "internal/signals/source/remote", "app", "internal/replicas", "test/..."}},
	{module + "/internal/placement/strategy", []string{"policies/gpumemory", "policies/resourceclaims"}},
	{"k8s.io/kube-scheduler/framework", []string{"schedplugin"}},
	{"k8s.io/kubernetes/...", nil},
}

type pkg struct {
	Name         string
	ImportPath   string
	Imports      []string
	Deps         []string
	TestImports  []string
	XTestImports []string
}

func listed(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=Name,ImportPath,Imports,Deps,TestImports,XTestImports", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func matches(path string, patterns ...string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
			return path == tree || strings.HasPrefix(path, tree+"/")
		}
		ok, err := filepath.Match(pattern, path)
		return err == nil && ok
	})
}

// short returns the path without internal/.
func short(path string) string { return strings.TrimPrefix(path, "internal/") }

func TestImportsGoOneWay(t *testing.T) {
	applied := map[string]bool{}
	for _, p := range listed(t) {
		own := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, rule := range rules {
			if !matches(short(own), rule.packages) {
				continue
			}
			applied[rule.packages] = true
			for _, dep := range p.Deps {
				dep, ours := strings.CutPrefix(dep, module+"/")
				if ours && !matches(short(dep), rule.may...) {
					t.Errorf("%s depends on %s: %s", own, dep, rule.why)
				}
			}
		}
		if matches(own, "policies/*") && own != "policies/standard" {
			for _, dep := range p.Deps {
				if dep, ours := strings.CutPrefix(dep, module+"/"); ours && matches(dep, "policies/*") {
					t.Errorf("%s depends on %s: no policy imports another", own, dep)
				}
			}
		}
		for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
			if dep, ours := strings.CutPrefix(imported, module+"/"); ours && matches(dep, "test/controlplane", "test/stage") && !matches(own, "test/...") {
				t.Errorf("tests of %s import %s: make test starts no control plane", own, dep)
			}
		}
		for _, rule := range only {
			if matches(own, rule.by...) {
				continue
			}
			for _, imported := range p.Imports {
				if matches(imported, rule.imported) {
					t.Errorf("%s imports %s, which only %v may", own, imported, rule.by)
				}
			}
		}
	}
	for _, rule := range rules {
		if !applied[rule.packages] {
			t.Errorf("no package matches the rule for %q", rule.packages)
		}
	}
}
