package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/signal/standard"
	"outboard.dev/outboard/snapshot"
)

// execute runs the command line and returns what it prints.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return executeWith(t, nil, args...)
}

func executeWith(t *testing.T, options []Option, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := NewCommand(options...)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outboard.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	header = "apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\n"
	plain  = header + "serving: {insecure: true}\n"
)

func TestErrorsOfAnOperator(t *testing.T) {
	wrong := file(t, plain+"profiles:\n- policies: [{type: ImageLocality, wieght: 2}]\n  shortlist: -1\n")
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	for _, tt := range []struct {
		name string
		args []string
		want []string
	}{
		{"a configuration without its flag", []string{"serve", wrong}, []string{"usage: outboard serve --config FILE"}},
		{"no configuration", []string{"serve"}, []string{"--config is missing: usage: outboard serve --config FILE"}},
		{"no such file", []string{"serve", "--config", "/nowhere.yaml"}, []string{"/nowhere.yaml", "no such file"}},
		{"all errors at once", []string{"serve", "--config", wrong}, []string{":5: profiles[0].policies[0].wieght", `did you mean "weight"?`, ":6: profiles[0].shortlist"}},
		{"no service", []string{"explain", "p", "--admin", "http://127.0.0.1:1"}, []string{"calling the service at http://127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused: --admin must be", "kubectl port-forward"}},
		{"output", []string{"explain", "p", "-o", "xml"}, []string{`--output="xml": must be text, json or yaml`}},
		{"no such pod name", []string{"explain", "a/b/c"}, []string{`"a/b/c": must be [NAMESPACE/]POD`}},
		{"no decisions", []string{"explain", "--latest", "--limit", "0"}, []string{`--limit="0": must be a number between 1 and `}},
		{"an address of another service, for gpus", []string{"gpus", "--admin", other.URL}, []string{"the service at " + other.URL + " shows no GPUs (status 404)", "GPUMemory", "--admin"}},
		{"an address of another service, for explain", []string{"explain", "p", "--admin", other.URL}, []string{"the service at " + other.URL + " explains nothing (status 404)", "admin address of outboard serve"}},
		{"no directory", []string{"setup", "certs"}, []string{"--dir is missing: usage: outboard setup certs --dir DIRECTORY | --cluster"}},
		{"unknown command", []string{"srve"}, []string{`"srve"`, "Did you mean this?", "serve"}},
		{"a guess at check", []string{"lint"}, []string{"Did you mean this?\n\tcheck\n"}},
		{"a guess at explain", []string{"waiting"}, []string{"Did you mean this?\n\texplain\n"}},
		{"a guess at gpus", []string{"audit"}, []string{"Did you mean this?\n\tgpus\n"}},
		{"a guess at setup", []string{"certs"}, []string{"Did you mean this?\n\tsetup\n"}},
		{"decisions about a pod", []string{"explain", "p", "--latest"}, []string{"leave it out with POD"}},
		{"a node of no pod", []string{"explain", "--node", "n"}, []string{"--node needs POD"}},
		{"a pod of all namespaces", []string{"explain", "p", "-A"}, []string{"name one as NAMESPACE/POD"}},
		{"nothing to set up", []string{"setup"}, []string{"COMMAND is missing: must be certs or scheduler"}},
		{"set up what", []string{"setup", "tls"}, []string{`"tls": must be certs or scheduler`}},
		{"no file to check", []string{"check"}, []string{"FILE is missing: usage: outboard check [FILE]"}},
		{"too many", []string{"gpus", "a", "b"}, []string{`takes no argument "b"`, "gpus [NODE]"}},
		{"two namespaces", []string{"explain", "a/b", "-n", "c"}, []string{"--namespace=c does not go with a/b"}},
		{"address without a scheme", []string{"gpus", "--admin", "127.0.0.1:1"}, []string{"calling the service at http://127.0.0.1:1: ", "refused", "--admin must be"}},
		{"no cluster to audit", []string{"gpus", "--audit", "--context", "none"}, []string{"set --kubeconfig"}},
		{"check", []string{"check", wrong, "-o", "xml"}, []string{"--output"}},
		{"allocations without a cluster", []string{"serve", "--config", file(t, plain+"clientConnection: {enabled: false}\nprofiles:\n- policies: [{type: GPUMemory}]\n")},
			[]string{":6: profiles[0].policies[0].type: Forbidden: GPUMemory allocates", "clientConnection.enabled is false"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := execute(t, tt.args...)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %q, want %q", err, want)
				}
			}
		})
	}
}

// A signal with two sources is one error, without a second one about the policy that reads it.
func TestSignalWithTwoSources(t *testing.T) {
	_, err := execute(t, "serve", "--print-config", "--config", file(t, plain+`signals:
- {name: load, file: {path: load.yaml}, prometheus: {address: "http://prometheus:9090", query: load}}
profiles:
- policies: [{type: Utilization, config: {cpu: {signal: load, unit: Fraction}}}]
`))
	if err == nil || !strings.Contains(err.Error(), ":5: signals[0].file: Forbidden: a signal has one source, but this one has prometheus") || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("got %v", err)
	}
}

// Custom types of sources have a place in the file, defaults and errors.
func TestOwnSignals(t *testing.T) {
	type config struct {
		Turns int `json:"turns" limits:"1.."`
	}
	build := func(c config) (signal.Spec, error) {
		return signal.Spec{About: policy.AboutNodes}, fields.Check(nil, &c).ToAggregate()
	}
	option := WithSignals(append(standard.Types(), signal.TypeOf("wheel", func() config { return config{Turns: 3} }, build))...)
	print := func(wheel string) (string, error) {
		return executeWith(t, []Option{option}, "serve", "--print-config", "--config", file(t, plain+"signals:\n- {name: a, "+wheel+"}\nprofiles:\n- policies: [{type: ImageLocality}]\n"))
	}
	if text, err := print("wheel: {}"); err != nil || !strings.Contains(text, "    wheel:\n      turns: 3\n") {
		t.Errorf("the default: %v\n%s", err, text)
	}
	for wheel, want := range map[string]string{"wheel: {turns: 0}": ":5: signals[0].wheel.turns: Invalid value: 0", "whel: {}": `:5: signals[0].whel: Unknown field: did you mean "wheel"?`} {
		if _, err := print(wheel); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", wheel, err, want)
		}
	}
	schema, err := executeWith(t, []Option{option}, "check", "--schema")
	if want := `"turns":{"type":["integer","null"],"default":3,"minimum":1}`; err != nil || !strings.Contains(strings.Join(strings.Fields(schema), ""), want) {
		t.Errorf("the schema: %v\n%s", err, schema)
	}
}

func TestVersion(t *testing.T) {
	if out, err := execute(t, "version"); err != nil || !strings.HasPrefix(out, "outboard ") {
		t.Errorf("%v: %q", err, out)
	}
	commit := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "c0ffee"}, {Key: "vcs.modified", Value: "true"}}
	for _, tt := range []struct {
		info debug.BuildInfo
		want version
	}{
		{debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, version{"v1.2.3", "(unknown)"}},
		{debug.BuildInfo{Main: debug.Module{Version: "v1.2.4-0.20260101000000-c0ffee+dirty"}, Settings: commit}, version{"v1.2.4-0.20260101000000-c0ffee+dirty", "c0ffee"}},
		{debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, version{"(devel)", "(unknown)"}},
		{debug.BuildInfo{}, version{"(devel)", "(unknown)"}},
	} {
		if got := versionOf(&tt.info); got != tt.want {
			t.Errorf("%+v is %+v, want %+v", tt.info, got, tt.want)
		}
	}
}

func TestCheck(t *testing.T) {
	good := file(t, plain+"signals: [{name: load, file: {path: a}}]\nprofiles:\n- policies: [{type: ImageLocality}, {type: PodLimit, config: {max: 1, selector: {}}}]\n")
	if out, err := execute(t, "check", good); err != nil || out != good+" is valid.\nprofile /: ImageLocality, PodLimit; for every pod\n  Soft: pods are placed without Outboard while it does not respond.\nsignal load: file\nnot checked: the source of the signal load (outboard serve reads it: /readyz and the page show whether it can)\n" {
		t.Errorf("a valid file: %v\n%s", err, out)
	}
	var document map[string]any
	out, err := execute(t, "check", "-o", "json", good)
	if err := errors.Join(err, json.Unmarshal([]byte(out), &document)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{
		"valid":    true,
		"profiles": []any{map[string]any{"path": "/", "policies": []any{"ImageLocality", "PodLimit"}, "strict": false}},
		"signals":  []any{map[string]any{"name": "load", "source": "file"}},
		"notChecked": []any{map[string]any{
			"what": "the source of the signal load", "why": "outboard serve reads it: /readyz and the page show whether it can",
		}},
	}, document); diff != "" {
		t.Errorf("a valid file as JSON differs (-want +got):\n%s", diff)
	}
	bad := file(t, plain+"profiles:\n- policies: [{type: PodLimit, config: {max: 0, selector: {matchLabel: {a: b}}}}]\n  shortlst: 1\n")
	for _, tt := range []struct{ format, want string }{
		{"text", bad + `:5: profiles[0].policies[0].config.selector.matchLabel: Unknown field: did you mean "matchLabels"? (policy PodLimit)
` + bad + `:5: profiles[0].policies[0].config.max: Invalid value: 0: must be at least 1 (policy PodLimit)
` + bad + `:6: profiles[0].shortlst: Unknown field: did you mean "shortlist"?
`},
		{"json", `"line": 6,` + "\n" + `      "field": "profiles[0].shortlst",` + "\n" + `      "message": "Unknown field: did you mean \"shortlist\"?"`},
	} {
		out, err := execute(t, "check", "-o", tt.format, bad)
		if exitStatus(err) != 1 {
			t.Errorf("-o %s: status %d\n%s", tt.format, exitStatus(err), out)
		}
		for _, line := range strings.SplitAfter(tt.want, "\n") {
			if !strings.Contains(out, line) {
				t.Errorf("-o %s\n%swant %s", tt.format, out, line)
			}
		}
	}
}

// The name - is standard input.
func TestStandardInput(t *testing.T) {
	const block = "apiVersion: outboard.dev/v1alpha1\n%[1]skind: OutboardConfiguration\n%[1]sserving: {insecure: true}\n%[1]sprofiles: [{policies: [{type: ImageLocality}]}]\n"
	one := "apiVersion: v1\ndata:\n  outboard.yaml: |\n    " + fmt.Sprintf(block, "    ") + "kind: ConfigMap\nmetadata: {name: outboard}\n"
	all := "apiVersion: v1\nitems:\n- apiVersion: v1\n  data: {ca.crt: x}\n  kind: ConfigMap\n- apiVersion: v1\n  data:\n    outboard.yaml: |\n      " + fmt.Sprintf(block, "      ") + "  kind: ConfigMap\nkind: List\nmetadata: {resourceVersion: \"\"}\n"
	running := file(t, plain+"profiles:\n- policies: [{type: ImageLocality, failurePolicy: Ignore}]\n")
	const same = "standard input is valid.\nprofile /: ImageLocality; for every pod\n  Soft: pods are placed without Outboard while it does not respond.\nchange: profiles[0].policies[0].failurePolicy: Ignore → Fail\n"
	scheduler := "    " + strings.ReplaceAll(strings.TrimSpace(ignorableBinder), "\n", "\n      ") + "\n"
	schedulers := "apiVersion: v1\nitems:\n- apiVersion: v1\n  data:\n    scheduler.yaml: |\n  " + scheduler + "  kind: ConfigMap\nkind: List\n"
	for _, tt := range []struct {
		args, in string
		status   int
		want     string
	}{
		{"check - --against " + running, one, 0, same},
		{"check - --against " + running, all, 0, same},
		{"check " + running + " --against -", all, 0, "change: profiles[0].policies[0].failurePolicy: Fail → Ignore\n"},
		{"check -", strings.Replace(all, "type: ImageLocality", "type: ImageLocalty", 1), 1, "standard input:12: profiles[0].policies[0].type"},
		{"check -", "apiVersion: v1\nkind: List\nitems: []\n", 1, "standard input:2: kind: Unsupported value: \"List\": must be OutboardConfiguration"},
		{"check --scheduler -", schedulers, 1, "standard input:13: [ERROR IgnorableBinder]"},
		{"check -", plain + "profiles:\n- policies: [{type: ImageLocality}]\n", 0, "standard input is valid.\nprofile /: ImageLocality; for every pod\n"},
		{"check -", plain + "profiles:\n- policies: [{type: GPUMemory}]\n", 0, "Strict: pods that request a managed resource stay pending while Outboard does not respond.\n"},
		{"check -", header, 1, "standard input:1: profiles: Required value"},
		{"check -", "apiVersion: v1\nkind: ConfigMap\ndata: {}\n", 1, "must be OutboardConfiguration; the configuration is a value in the data of a ConfigMap"},
		{"setup scheduler -", all, 0, "urlPrefix: http://127.0.0.1:8888\n"},
		{"check - --scheduler " + schedulerFile(t, ignorableBinder), all, 1, "[ERROR IgnorableBinder]"},
		{"check --scheduler -", "kind: Policy\n", 1, "standard input:1: [ERROR Syntax] kind: this is a Policy"},
	} {
		var out bytes.Buffer
		cmd := NewCommand()
		cmd.SetIn(strings.NewReader(tt.in))
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(strings.Fields(tt.args))
		if err := cmd.ExecuteContext(t.Context()); exitStatus(err) != tt.status || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: error %v\n%swant %s", tt.args, err, out.String(), tt.want)
		}
	}
}

func TestCheckWarns(t *testing.T) {
	odd := file(t, plain+"profiles:\n- managedResources:\n  - {name: aliyun.com/gpu-mem}\n  - {name: aliyun.com/gpu-count}\n  - {name: example.com/a, ignoredByScheduler: true}\n  policies: [{type: GPUMemory}]\n")
	out, err := execute(t, "check", odd)
	if err != nil || !strings.HasPrefix(out, "warning: "+odd+":8: profiles[0].managedResources[2].ignoredByScheduler: ") || strings.Count(out, "warning") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}

// explain accepts what explain prints; its exit status shows whether the service knows the pod.
func TestExplainPod(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere") // so the namespace is default
	pods := map[string]*corev1.Pod{}
	source := explain.Source{
		Log: decision.NewLog(0), Engines: func() map[string]*engine.Engine { return map[string]*engine.Engine{"/gpu": nil} },
		View: func(types.UID) *snapshot.View { return new(snapshot.View) },
		Pod: func(_ context.Context, namespace, name string) (*corev1.Pod, error) {
			return pods[namespace+"/"+name], nil
		},
	}
	pods["team/web-1"] = &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}}
	server := httptest.NewServer(explain.Handler(source))
	defer server.Close()
	admin := strings.TrimPrefix(server.URL, "http://")
	for _, tt := range []struct {
		args   string
		status int
		want   string
	}{
		{"team/web-1", 0, "Pod team/web-1 is on node n."},
		{"web-1 -n team", 0, "Pod team/web-1 is on node n."},
		{"pod/web-1 -n team", 0, "Pod team/web-1 is on node n."},
		{"pods/web-1", 1, "Pod default/web-1 is not known"},
		{"pod/web-1 -n pod", 1, "Pod pod/web-1 is not known"},
		{"web-1", 1, "Pod default/web-1 is not known"},
		{"web-1 -o json", 1, `"known": false`},
	} {
		out, err := execute(t, append([]string{"explain", "--admin", admin}, strings.Fields(tt.args)...)...)
		if err != nil {
			out += err.Error()
		}
		if exitStatus(err) != tt.status || !strings.Contains(out, tt.want) {
			t.Errorf("explain %s: status %d\n%swant %q", tt.args, exitStatus(err), out, tt.want)
		}
	}
}

// The examples of all commands have flags and arguments that exist.
func TestExamples(t *testing.T) {
	examples := 0
	every(commandTree(), func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			_, args, ok := strings.Cut(strings.TrimSpace(line), cmd.Name()+" ")
			if !ok || strings.ContainsAny(args, "|>") {
				continue
			}
			examples++
			if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	})
	if examples < 15 {
		t.Errorf("there are only %d examples", examples)
	}
}

func TestPrintConfigPrintsWhatLoads(t *testing.T) {
	first, err := execute(t, "serve", "--print-config", "--config", file(t, plain+"profiles:\n- policies: [{type: ImageLocality}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(first, "weight: 1") || !strings.Contains(first, "shutdownDelay: 0s") {
		t.Errorf("defaults are missing:\n%s", first)
	}
	again, err := execute(t, "serve", "--print-config", "--config", file(t, first))
	if err != nil || again != first {
		t.Errorf("printed again: %v\n%s", err, again)
	}
}
