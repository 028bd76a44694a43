package doctor

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/wiring/doctor"
	"outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
)

// judge compares the doctor with kube-scheduler, and counts.
type judge struct {
	testing.TB
	dir string // of the files that configurations name as /tls
	counts
	disagreements map[string][]disagreement // by kind
}

// disagreement is a file about which the doctor and kube-scheduler disagree.
type disagreement struct {
	name, content, detail string
	outboard              *config.Config
}

type counts struct {
	files, accepted, refused           int
	missed, elsewhere, unnamed, alarms int
	machine                            int
	complaints, found                  int
}

func newJudge(tb testing.TB) *judge {
	j := &judge{TB: tb, dir: tb.TempDir(), disagreements: map[string][]disagreement{}}
	j.certificates()
	return j
}

// configuration returns a configuration of Outboard.
func (j *judge) configuration(text string) *config.Config {
	c, err := config.ParseManifest("outboard.yaml", []byte(j.here(text)), config.Types{Policies: standard.Types(), Signals: signals.Types()})
	if err != nil {
		j.Fatal(err)
	}
	return c
}

// here replaces /tls by the directory of the files.
func (j *judge) here(text string) string { return strings.ReplaceAll(text, "/tls/", j.dir+"/") }

// certificates writes the files that configurations name: of an authority, and of one whose certificates end soon.
func (j *judge) certificates() {
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(j.dir, name), data, 0o600); err != nil {
			j.Fatal(err)
		}
	}
	begin := time.Now().Add(-time.Hour)
	for name, a := range map[string]struct {
		end    time.Time
		leaves map[string]certs.Request
	}{
		"ca": {time.Now().AddDate(5, 0, 0), map[string]certs.Request{
			"client": {CommonName: "kube-scheduler", Client: true},
			"server": {CommonName: "outboard", Hosts: []string{"127.0.0.1", "outboard.outboard-system.svc"}, Server: true},
			"other":  {CommonName: "other", Client: true},
		}},
		"stranger": {time.Now().AddDate(5, 0, 0), nil},
		"soon": {time.Now().AddDate(0, 0, 30), map[string]certs.Request{
			"last": {CommonName: "outboard", Hosts: []string{"127.0.0.1"}, Server: true},
			"over": {CommonName: "kube-scheduler", Client: true, NotAfter: time.Now().Add(-time.Minute)},
		}},
	} {
		ca, err := certs.NewAuthority(certs.AuthorityOptions{CommonName: name, NotBefore: begin, NotAfter: a.end})
		if err != nil {
			j.Fatal(err)
		}
		write(name+".crt", ca.Pair().Cert)
		for leaf, request := range a.leaves {
			request.NotBefore = begin
			if request.NotAfter.IsZero() {
				request.NotAfter = a.end
			}
			pair, err := ca.Issue(request)
			if err != nil {
				j.Fatal(err)
			}
			write(leaf+".crt", pair.Cert)
			write(leaf+".key", pair.Key)
		}
	}
	write("scheduler.conf", []byte("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: "+nowhere+"}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n"))
}

// separator separates the documents of a file.
var separator = regexp.MustCompile(`(?m)^---(?:[ \t].*)?\r?\n`)

// configurationIn returns the configuration that a file is about, and how many lines of the file are above it: the value in a
// ConfigMap, or else the file as kube-scheduler reads it. The lines are -1 if those of the value are not lines of the file.
func configurationIn(data []byte) (inner []byte, above int) {
	value := ""
	for _, text := range configMapsIn(data) {
		if strings.Contains(text, "KubeSchedulerConfiguration") || strings.Contains(text, "Policy") {
			value = text
			break
		}
	}
	if value == "" {
		return data, 0
	}
	first, _, _ := strings.Cut(value, "\n")
	before, _, found := bytes.Cut(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\n    "+first+"\n"))
	if !found {
		return []byte(value), -1
	}
	return []byte(value), bytes.Count(before, []byte("\n")) + 1
}

// configMapsIn returns the values in the ConfigMaps of a file, also in lists, in the order of the documents and keys.
func configMapsIn(data []byte) (values []string) {
	rest := data
	for len(rest) > 0 {
		doc := rest
		next := separator.FindIndex(rest)
		if next != nil {
			doc, rest = rest[:next[0]], rest[next[1]:]
		} else {
			rest = nil
		}
		var object corev1.ConfigMap
		var list corev1.ConfigMapList
		switch {
		case yaml.Unmarshal(doc, &object) != nil:
			continue
		case object.Kind == "ConfigMap":
			list.Items = append(list.Items, object)
		case object.Kind != "List" || yaml.Unmarshal(doc, &list) != nil:
			continue
		}
		for _, object := range list.Items {
			for _, key := range slices.Sorted(maps.Keys(object.Data)) {
				if object.Kind == "ConfigMap" {
					values = append(values, object.Data[key])
				}
			}
		}
	}
	return values
}

// disagree records a disagreement about a file.
func (j *judge) disagree(kind string, c *judged, detail string) {
	j.disagreements[kind] = append(j.disagreements[kind], disagreement{c.name, c.content, c.shown + detail, c.outboard})
}

// judged is a file with what both say about it.
type judged struct {
	name, content string
	outboard      *config.Config
	input         doctor.Input
	findings      []doctor.Finding
	above         int // lines of the file above the configuration
	refusal       error
	shown         string
}

// judge judges what the doctor says about a file.
func (j *judge) judge(name, content string, outboard *config.Config) {
	j.files++
	f := &judged{name: name, content: content, outboard: outboard}
	f.input = doctor.Input{File: "scheduler.yaml", Data: []byte(content), Config: outboard, ReadFile: os.ReadFile, ReadConfigFile: os.ReadFile, Now: time.Now()}
	if outboard != nil {
		f.input.ConfigFile = "outboard.yaml"
	}
	var err error
	if f.findings, _, err = doctor.Check(f.input); err != nil {
		j.disagree("(a) Check fails", f, err.Error())
		return
	}
	var inner []byte
	inner, f.above = configurationIn(f.input.Data)
	f.refusal = load(j, inner)
	f.shown = fmt.Sprintf("%s\n  kube-scheduler: %v\n  doctor:\n%s", indentedText(content), f.refusal, describe(f.findings))
	if f.refusal == nil {
		j.accepted++
		for _, found := range f.findings {
			if preventsStart(found) {
				j.alarms++
				j.disagree("(b) false alarm: "+found.Code+" "+pattern(found.Field)+": "+pattern(found.Message), f, "")
			}
		}
	} else {
		j.refused++
		j.refusal(f)
	}
}

// refusal judges whether the doctor names what kube-scheduler refuses.
func (j *judge) refusal(f *judged) {
	anyFound := false
	var lost []string
	all := complaints(j, f.refusal)
	for _, c := range all {
		if c.machine != "" {
			j.machine++
			continue
		}
		if !c.ofExtenders() {
			continue // it is kube-scheduler's to say
		}
		j.complaints++
		if slices.ContainsFunc(f.findings, func(found doctor.Finding) bool {
			return c.names(found, f.above) || strings.Contains(found.Message, f.refusal.Error())
		}) {
			j.found++
			anyFound = true
		} else {
			lost = append(lost, fmt.Sprintf("%v line %d", c.paths, c.line))
		}
	}
	switch kind := pattern(f.refusal.Error()); {
	case !anyFound && len(lost) == 0:
	case errorsOf(f.findings) == 0:
		j.missed++
		j.disagree("(a) no ERROR: "+kind, f, "")
	case !anyFound:
		j.elsewhere++
		j.disagree("(a) ERROR elsewhere: "+kind, f, "")
	case len(lost) > 0:
		j.unnamed++
		j.disagree("(a) not all fields: "+kind, f, fmt.Sprintf("  not found: %v", lost))
	}
}

func errorsOf(findings []doctor.Finding) (n int) {
	for _, f := range findings {
		if f.Severity == doctor.Error {
			n++
		}
	}
	return n
}

var (
	quotedText = regexp.MustCompile(`"[^"]*"`)
	number     = regexp.MustCompile(`\d+`)
	filePath   = regexp.MustCompile(`/\S+`)
)

// pattern returns the text without what differs from file to file.
func pattern(text string) string {
	text, _, _ = strings.Cut(text, " is missing in")
	text = filePath.ReplaceAllString(number.ReplaceAllString(quotedText.ReplaceAllString(text, `"…"`), "N"), "/…")
	text = strings.Join(strings.Fields(text), " ")
	return text[:min(len(text), 100)]
}

func indentedText(text string) string {
	return "  | " + strings.ReplaceAll(strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\r", "␍"), "\n", "\n  | ")
}

// report prints the counts and the disagreements.
func (j *judge) report() {
	j.Helper()
	for _, kind := range slices.SortedFunc(maps.Keys(j.disagreements), func(a, b string) int {
		return cmp.Or(-cmp.Compare(len(j.disagreements[a]), len(j.disagreements[b])), cmp.Compare(a, b))
	}) {
		all := j.disagreements[kind]
		if isDisputed(kind) {
			j.Logf("disputed: %d× %s", len(all), kind)
		} else {
			j.Errorf("%d× %s", len(all), kind)
		}
		slices.SortFunc(all, func(a, b disagreement) int { return len(a.content) - len(b.content) })
		for _, d := range all {
			j.Logf("%s\n%s", d.name, d.detail)
		}
	}
	c := j.counts
	j.Logf("files %d, accepted %d (%d %%), refused %d (of these for files that do not exist %d)", c.files, c.accepted, 100*c.accepted/max(1, c.files), c.refused, c.machine)
	j.Logf("refused without an ERROR %d, with an ERROR for another field only %d, with ERRORs for some of the fields only %d; complaints %d, found %d", c.missed, c.elsewhere, c.unnamed, c.complaints, c.found)
	j.Logf("false alarms %d", c.alarms)
}

// disputed are kinds of disagreements that are known, and why they stay.
var disputed = map[string]string{
	"(b) false alarm: InvalidValue profiles[N].pluginConfig: there is no configuration for Outboard": "Outboard's plugin refuses it, and the judge's stub of the plugin does not",
	"(b) false alarm: InvalidValue profiles[N].pluginConfig[N].args.":                                "Outboard's plugin refuses them, and the judge's stub of the plugin does not",
	"(a) ERROR elsewhere: time: invalid duration":                                                    "kube-scheduler names no field, and the doctor finds other mistakes of the same file",
	"(a) ERROR elsewhere: illegal base":                                                              "kube-scheduler names no field, and the doctor finds other mistakes of the same file",
}

// isDisputed reports whether the kind of disagreement is known.
func isDisputed(kind string) bool {
	for known := range disputed {
		if strings.HasPrefix(kind, known) {
			return true
		}
	}
	return false
}
