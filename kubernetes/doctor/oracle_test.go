package doctor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"outboard.dev/outboard/internal/wiring/doctor"
	"outboard.dev/outboard/schedplugin"
)

// nowhere is the address of an API server that does not run. kube-scheduler does not connect before it has read its configuration.
const nowhere = "http://127.0.0.1:1"

// load does what kube-scheduler --config FILE --write-config-to does, except that it writes nothing: it loads, defaults and
// validates the file, and creates the scheduler with its profiles, plugins and extenders. It returns the error with which
// kube-scheduler does not start.
func load(tb testing.TB, data []byte) error {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	defer cancel()
	o := options.NewOptions()
	o.ConfigFile, o.Master = file, nowhere
	o.SecureServing, o.Authentication, o.Authorization = nil, nil, nil // not in the file, and slow
	var plugins []app.Option
	if bytes.Contains(data, []byte("name: "+schedplugin.Name)) {
		plugins = append(plugins, app.WithPlugin(schedplugin.Name, plugin)) // kube-scheduler is outboard-scheduler then
	}
	_, _, err := app.Setup(ctx, o, plugins...)
	return err
}

// extension is a plugin with the extension points of Outboard's.
type extension interface {
	fwk.PreFilterPlugin
	fwk.FilterPlugin
	fwk.PostFilterPlugin
	fwk.PreScorePlugin
	fwk.ScorePlugin
	fwk.ReservePlugin
	fwk.BindPlugin
}

// stub is a plugin of which only the name is called.
type stub struct{ extension }

func (stub) Name() string { return schedplugin.Name }

func plugin(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return stub{}, nil }

// complaint is one of the problems that an error of kube-scheduler lists.
type complaint struct {
	// paths are the fields that it can be about: one, unless kube-scheduler does not name the field. A path without indices
	// is that of any item.
	paths []string
	// line is the line of a syntax error; 0 is none.
	line int
	// file reports that kube-scheduler names no part of the file.
	file bool
	// machine is a file that kube-scheduler does not find on this machine.
	machine string
}

var (
	unknownField  = regexp.MustCompile(`(?:unknown|duplicate) field ("(?:[^"\\]|\\.)*")`)
	pluginArgs    = regexp.MustCompile(`decoding \.(profiles\[\d+\]\.pluginConfig\[\d+\])`)
	syntaxLine    = regexp.MustCompile(`line (\d+): `)
	wrongType     = regexp.MustCompile(`cannot unmarshal .+? into Go struct field [A-Za-z]*\.(\S+) of type`)
	invalidField  = regexp.MustCompile(`(?:^|[\[,] ?)([a-z][A-Za-z]*(?:\[\d+\]|\.[A-Za-z]+)*): (?:Invalid|Required|Duplicate|Unsupported|Forbidden|Not found|Too)`)
	missingFile   = regexp.MustCompile(`(?:open|stat) (\S+): no such file or directory`)
	durationError = regexp.MustCompile(`time: (?:missing unit in|invalid|unknown unit .* in) duration`)
)

var durations = []string{"extenders.httpTimeout", "leaderElection.leaseDuration", "leaderElection.renewDeadline", "leaderElection.retryPeriod"}

// complaints returns the problems that the error names. An error that they do not know fails the test: what kube-scheduler says is
// judged only if it is understood.
func complaints(tb testing.TB, err error) (all []complaint) {
	tb.Helper()
	text := err.Error()
	field := func(paths ...string) { all = append(all, complaint{paths: paths}) }
	switch m := missingFile.FindStringSubmatch(text); {
	case m != nil && strings.HasPrefix(text, "couldn't build extenders: "):
		all = append(all, complaint{paths: []string{"extenders.tlsConfig"}, machine: m[1]})
	case m != nil:
		all = append(all, complaint{paths: []string{"clientConnection.kubeconfig"}, machine: m[1]})
	case strings.HasPrefix(text, "couldn't build extenders: "):
		field("extenders.tlsConfig")
	case strings.HasPrefix(text, "initializing profiles: "):
		field("profiles")
	case pluginArgs.MatchString(text):
		field(pluginArgs.FindStringSubmatch(text)[1])
	case strings.HasPrefix(text, "Object 'Kind' is missing"):
		field("kind")
	case strings.HasPrefix(text, "Object 'apiVersion' is missing"):
		field("apiVersion", "kind") // as below: what the file is depends on both
	case strings.HasPrefix(text, "no kind "):
		field("kind", "apiVersion")
	case strings.HasPrefix(text, "illegal base64 data"):
		field("extenders.tlsConfig.caData", "extenders.tlsConfig.certData", "extenders.tlsConfig.keyData")
	case durationError.MatchString(text):
		field(durations...)
	case wrongType.MatchString(text):
		field(wrongType.FindStringSubmatch(text)[1])
	case strings.Contains(text, "json parse error"), strings.HasPrefix(text, "yaml: ") && !syntaxLine.MatchString(text), strings.HasPrefix(text, "json: cannot unmarshal"),
		strings.HasPrefix(text, "error converting YAML to JSON"):
		all = append(all, complaint{file: true})
	default:
		for _, m := range syntaxLine.FindAllStringSubmatch(text, -1) {
			line, err := strconv.Atoi(m[1])
			if err != nil {
				tb.Fatal(err)
			}
			all = append(all, complaint{line: line})
		}
		for _, m := range unknownField.FindAllStringSubmatch(text, -1) {
			name, err := strconv.Unquote(m[1])
			if err != nil {
				tb.Fatal(err)
			}
			field(name)
		}
		for _, m := range invalidField.FindAllStringSubmatch(text, -1) {
			field(m[1])
		}
	}
	if len(all) == 0 {
		tb.Errorf("the test does not know this error of kube-scheduler: %s", text)
	}
	return all
}

// ofExtenders reports whether the complaint is about an extender, or about the file as a whole.
func (c complaint) ofExtenders() bool {
	return c.line > 0 || c.file || slices.ContainsFunc(c.paths, func(path string) bool { return path == "kind" || strings.HasPrefix(path, "extender") })
}

// names reports whether the finding is about what the complaint is about. The configuration begins after so many lines of the file;
// below 0, its lines are not those of the file.
func (c complaint) names(f doctor.Finding, above int) bool {
	switch {
	case f.Severity != doctor.Error:
		return false
	case strings.HasSuffix(f.Message, "not indented"):
		return true // one finding about all fields that have lost their place
	case c.line > 0 && above < 0:
		return f.Code == "Syntax"
	case c.line > 0:
		// Two parsers name the place of an error or the end of the token before it.
		return f.Line-above >= c.line-1 && f.Line-above <= c.line+1
	case c.file:
		// kube-scheduler names no field, and the doctor may find the cause.
		return f.Code == "Syntax" || f.Field == "kind" || strings.Contains(f.Message, "Invalid key") || strings.Contains(f.Message, "mapping")
	}
	return slices.ContainsFunc(c.paths, func(path string) bool {
		if path == "kind" && f.Code == "Syntax" && f.Field == "" {
			return true // the file has no such object at all
		}
		return within(f.Field, path)
	})
}

var (
	index  = regexp.MustCompile(`\[\d+\]`)
	dotted = regexp.MustCompile(`(?:^\[(\d+)\]|\[([^\]]*[^\]\d][^\]]*)\])`) // a name that is no identifier
)

// within reports whether field is at path or below it.
func within(field, path string) bool {
	field = strings.TrimPrefix(dotted.ReplaceAllString(field, ".$1$2"), ".")
	if !index.MatchString(path) {
		field = index.ReplaceAllString(field, "")
	}
	rest, ok := strings.CutPrefix(field, path)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// preventsStart reports whether the finding says that kube-scheduler does not start with the file.
func preventsStart(f doctor.Finding) bool {
	return f.Severity == doctor.Error && (f.Code == "Syntax" || strings.Contains(f.Message+f.Why, "not start"))
}

func describe(findings []doctor.Finding) string {
	var b strings.Builder
	for _, f := range findings {
		if f.Severity == doctor.Error {
			fmt.Fprintf(&b, "    line %d: [%s] %s: %s\n", f.Line, f.Code, f.Field, f.Message)
		}
	}
	return b.String()
}
