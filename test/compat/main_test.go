package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A page gets the table of a run of all releases, and keeps it otherwise. A failure is in the report.
func TestReport(t *testing.T) {
	r := report{day: "2026-03-01"}
	for _, p := range pairsBeside("v1.37.0") {
		for _, m := range modes {
			r.rows = append(r.rows, row{pair: p, mode: m.name, outcomes: slices.Repeat([]string{passed}, len(scenarios))})
		}
	}
	page := filepath.Join(t.TempDir(), "page.md")
	former := "# Title\n\n" + begin + "former table\n" + end + "\nAfter.\n"
	for _, tt := range []struct {
		rows []row
		want string
	}{
		{r.rows[1:], former},
		{r.rows, strings.Replace(former, "former table\n", r.text(), 1)},
	} {
		if err := os.WriteFile(page, []byte(former), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := (&report{day: r.day, rows: tt.rows}).write(page); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(page); err != nil || string(text) != tt.want {
			t.Errorf("after a run of %d releases, the page is\n%s\nwant\n%s", len(tt.rows), text, tt.want)
		}
	}
	r.rows[0].errors = []string{"filter: the event is\n\"other\""}
	if text := r.text(); r.failures() != 1 || !strings.HasSuffix(text, ": filter: the event is \"other\"\n") {
		t.Errorf("the report with a failure is\n%s", text)
	}
}

// The page has a row for each pair of releases that the command tests, and the chart installs in clusters of the oldest release whose
// API server is tested.
func TestPage(t *testing.T) {
	files := map[string]string{"kubernetes/go.mod": "", "docs/compatibility.md": "", "deploy/chart/Chart.yaml": ""}
	for name := range files {
		data, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(data)
	}
	current := regexp.MustCompile(`k8s\.io/kubernetes (v\S+)`).FindStringSubmatch(files["kubernetes/go.mod"])[1]
	for _, p := range pairsBeside(current) {
		if !strings.Contains(files["docs/compatibility.md"], fmt.Sprintf("\n| %s | %s |", p.server, p.scheduler)) {
			t.Errorf("the page has no row of %s", p)
		}
	}
	oldest := strings.TrimPrefix(servers[0][:strings.LastIndexByte(servers[0], '.')], "v")
	if want := fmt.Sprintf("kubeVersion: \">=%s.0-0\"", oldest); !strings.Contains(files["deploy/chart/Chart.yaml"], want) {
		t.Errorf("Chart.yaml lacks %s", want)
	}
}

// A program that is not of the release that it is tested as is an error.
func TestPairs(t *testing.T) {
	o := options{kubernetes: t.TempDir(), only: []string{"v1.29.6"}}
	program := func(path, version string) {
		path = filepath.Join(o.kubernetes, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho Kubernetes "+version+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program("bin/kube-apiserver", "v1.37.0")
	program("compat/v1.29.6/bin/kube-scheduler", "v1.29.6")
	if pairs, err := o.pairs(t.Context()); err != nil || len(pairs) != 1 || pairs[0].scheduler != "v1.29.6" || pairs[0].server != "v1.37.0" {
		t.Errorf("the pairs are %v, %v", pairs, err)
	}
	program("compat/v1.29.6/bin/kube-scheduler", "v1.29.5")
	if _, err := o.pairs(t.Context()); err == nil || !strings.Contains(err.Error(), "kube-scheduler is v1.29.5") {
		t.Errorf("error %v; want that the program is of another release", err)
	}
}
