package doctor

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/wiring/doctor"
)

// writeFiles writes the files that configurations name: of an authority, and of one whose certificates end soon.
func writeFiles(t *testing.T, dir string) {
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
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
			t.Fatal(err)
		}
		write(name+".crt", ca.Pair().Cert)
		for leaf, request := range a.leaves {
			request.NotBefore = begin
			if request.NotAfter.IsZero() {
				request.NotAfter = a.end
			}
			pair, err := ca.Issue(request)
			if err != nil {
				t.Fatal(err)
			}
			write(leaf+".crt", pair.Cert)
			write(leaf+".key", pair.Key)
		}
	}
	write("scheduler.conf", []byte("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: "+nowhere+"}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n"))
}

// separator separates the documents of a file.
var separator = regexp.MustCompile(`(?m)^---(?:[ \t].*)?\r?\n`)

// configurationIn returns the configuration that a file is about: the value in a ConfigMap, or else the file as kube-scheduler reads it.
func configurationIn(data []byte) []byte {
	for _, text := range configMapsIn(data) {
		if strings.Contains(text, "KubeSchedulerConfiguration") || strings.Contains(text, "Policy") {
			return []byte(text)
		}
	}
	return data
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

var (
	missingFile  = regexp.MustCompile(`(?:open|stat) (\S+): no such file or directory`)
	ofProfiles   = regexp.MustCompile(`^initializing profiles: |decoding \.profiles\[\d+\]\.pluginConfig\[\d+\]`)
	unknownField = regexp.MustCompile(`(?:unknown|duplicate) field ("(?:[^"\\]|\\.)*")`)
	otherFields  = []*regexp.Regexp{
		regexp.MustCompile(`cannot unmarshal .+? into Go struct field [A-Za-z]*\.(\S+) of type`),
		regexp.MustCompile(`(?:^|[\[,] ?)([a-z][A-Za-z]*(?:\[\d+\]|\.[A-Za-z]+)*): (?:Invalid|Required|Duplicate|Unsupported|Forbidden|Not found|Too)`),
	}
	index  = regexp.MustCompile(`\[\d+\]`)
	dotted = regexp.MustCompile(`(?:^\[(\d+)\]|\[([^\]]*[^\]\d][^\]]*)\])`) // a name that is no identifier
)

// fieldsIn returns the fields that an error of kube-scheduler names.
func fieldsIn(t *testing.T, text string) (fields []string) {
	t.Helper()
	for _, m := range unknownField.FindAllStringSubmatch(text, -1) {
		name, err := strconv.Unquote(m[1])
		if err != nil {
			t.Fatal(err)
		}
		fields = append(fields, name)
	}
	for _, r := range otherFields {
		for _, m := range r.FindAllStringSubmatch(text, -1) {
			fields = append(fields, m[1])
		}
	}
	return fields
}

// judge compares what the doctor and kube-scheduler say of a file. What kube-scheduler says of other fields than extenders is its own
// business, and a file that does not exist on this machine does not count.
func judge(t *testing.T, findings []doctor.Finding, refusal error) {
	t.Helper()
	findings = slices.DeleteFunc(slices.Clone(findings), func(f doctor.Finding) bool { return f.Severity != doctor.Error })
	if refusal == nil {
		for _, f := range findings {
			// Outboard's plugin refuses its arguments, and the stub of the plugin does not.
			if (f.Code == "Syntax" || strings.Contains(f.Message+f.Why, "not start")) && !strings.Contains(f.Field, "pluginConfig") {
				t.Errorf("kube-scheduler starts, and the doctor says:\n%s", f.Text())
			}
		}
		return
	}
	text := refusal.Error()
	if missingFile.MatchString(text) || ofProfiles.MatchString(text) {
		return
	}
	fields := fieldsIn(t, text)
	if len(fields) == 0 && len(findings) == 0 {
		t.Errorf("the doctor finds no error, and kube-scheduler says: %s", text)
	}
	for _, path := range fields {
		named := func(f doctor.Finding) bool {
			return within(f.Field, path) || strings.HasSuffix(f.Message, "not indented") || strings.Contains(f.Message, text)
		}
		if strings.HasPrefix(path, "extender") && !slices.ContainsFunc(findings, named) {
			t.Errorf("no error of the doctor is about %s: kube-scheduler says: %s", path, text)
		}
	}
}

// within reports whether field is at path or below it.
func within(field, path string) bool {
	field = strings.TrimPrefix(dotted.ReplaceAllString(field, ".$1$2"), ".")
	if !index.MatchString(path) {
		field = index.ReplaceAllString(field, "")
	}
	rest, ok := strings.CutPrefix(field, path)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
