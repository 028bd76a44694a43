package doctor_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/wiring"
	"outboard.dev/outboard/internal/wiring/doctor"
)

// anyConfig draws a configuration of profiles that one kube-scheduler can call.
func anyConfig(t *rapid.T) string {
	var b strings.Builder
	b.WriteString("apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\n")
	b.WriteString(rapid.SampledFrom([]string{
		"serving: {insecure: true}\n", "serving: {address: 0.0.0.0:8443, tls: {certFile: a, keyFile: b, clientCAFile: c, allowedClients: [kube-scheduler]}}\n",
		"serving: {address: 127.0.0.1:443, tls: {certFile: a, keyFile: b}}\n",
	}).Draw(t, "serving"))
	b.WriteString("profiles:\n")
	gpus := rapid.SampledFrom([]string{
		"", "- path: /gpu\n  managedResources: [{name: aliyun.com/gpu-mem, ignoredByScheduler: %t}, {name: aliyun.com/gpu-count, ignoredByScheduler: %t}]\n", "- path: /gpu\n",
	}).Draw(t, "gpus")
	if gpus != "" {
		b.WriteString(strings.ReplaceAll(gpus, "%t", fmt.Sprint(rapid.Bool().Draw(t, "ignored"))))
		fmt.Fprintf(&b, "  policies: [{type: GPUMemory, weight: %d}]\n", rapid.IntRange(0, 100).Draw(t, "weight"))
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "profiles") {
		if rapid.Bool().Draw(t, "one verb") {
			fmt.Fprintf(&b, "- path: /p%d/own\n  verb: %s\n", i, rapid.SampledFrom([]string{"Filter", "Prioritize", "Preempt"}).Draw(t, "verb"))
		} else {
			fmt.Fprintf(&b, "- path: /p%d\n", i)
		}
		fmt.Fprintf(&b, "  policies: [{type: ImageLocality, weight: %d}]\n", rapid.IntRange(1, 100).Draw(t, "weight"))
	}
	return b.String()
}

// What setup scheduler prints has neither errors nor warnings, except about the entry of which its
// comment warns, too.
func TestGeneratedConfigurationIsRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := anyConfig(t)
		in := doctor.Input{File: "scheduler.yaml", ConfigFile: "outboard.yaml", Now: now}
		in.Config = parseConfig(t, []byte(text))
		topologies := []wiring.Topology{wiring.Sidecar}
		if in.Config.Serving.Address == "0.0.0.0:8443" { // otherwise, Outboard serves only its own machine or pod
			topologies = append(topologies, wiring.Service, wiring.NodePort)
		}
		topology := rapid.SampledFrom(topologies).Draw(t, "topology")
		w, err := wiring.New(in.Config, wiring.Options{For: topology})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		in.Data = w.YAML()
		findings, _, err := doctor.Check(in)
		if err != nil {
			t.Fatal(err)
		}
		strict := false
		for _, f := range findings {
			if f.Code == "StrictForAllPods" {
				strict = true
			} else if f.Severity != doctor.Note {
				t.Errorf("%s\n%s\n%s", f.Text(), text, in.Data)
			}
		}
		comments := strings.Join(strings.Fields(strings.ReplaceAll(string(in.Data), "#", "")), " ")
		if warned := strings.Contains(comments, "not even Outboard's own"); warned != strict {
			t.Errorf("StrictForAllPods is reported: %t, and the comments say so: %t\n%s\n%s", strict, warned, text, in.Data)
		}
	})
}

// inputs returns the files in testdata that are checked.
func inputs(tb testing.TB) (files [][]byte) {
	tb.Helper()
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		tb.Fatalf("no archives: %v", err)
	}
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		files = append(files, archive.Files[0].Data)
	}
	return files
}

// Whatever the file is, it is checked without a panic.
func FuzzCheck(f *testing.F) {
	for _, data := range inputs(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { checked(t, data) })
}

func checked(tb failer, data []byte) {
	tb.Helper()
	config := parseConfig(tb, []byte("apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nserving: {insecure: true}\nprofiles:\n- managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}]\n  policies: [{type: GPUMemory}]\n"))
	if _, _, err := doctor.Check(doctor.Input{File: "scheduler.yaml", Data: data, Types: types, Config: config, ConfigFile: "outboard.yaml", Now: now}); err != nil {
		tb.Fatal(err)
	}
}

// mutated draws a file of the test data with lines that are missing, twice, moved or indented
// otherwise, or with another one's.
func mutated(t *rapid.T, files [][]byte) []byte {
	lines := func() []string {
		return strings.SplitAfter(string(rapid.SampledFrom(files).Draw(t, "file")), "\n")
	}
	text := lines()
	for range rapid.IntRange(0, 4).Draw(t, "changes") {
		i, j := rapid.IntRange(0, len(text)-1).Draw(t, "line"), rapid.IntRange(0, len(text)-1).Draw(t, "other")
		switch rapid.IntRange(0, 5).Draw(t, "change") {
		case 0:
			text = slices.Delete(slices.Clone(text), i, i+1)
		case 1:
			text = slices.Insert(slices.Clone(text), j, text[i])
		case 2:
			text[i], text[j] = text[j], text[i]
		case 3:
			text[i] = "  " + text[i]
		case 4:
			text[i] = strings.TrimPrefix(text[i], "  ")
		default:
			text = slices.Insert(slices.Clone(text), i, rapid.SampledFrom(lines()).Draw(t, "foreign"))
		}
		if len(text) == 0 {
			return nil
		}
	}
	return []byte(strings.Join(text, ""))
}

// Whatever people make of a file, it is checked without a panic.
func TestCheckOfMutatedFiles(t *testing.T) {
	files := inputs(t)
	rapid.Check(t, func(t *rapid.T) { checked(t, mutated(t, files)) })
}
