package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/yaml"
)

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// written returns the cells of a table on the page, row by row, without the header and the line below it, and the header.
func written(t *testing.T, page, name string) (header []string, rows [][]string) {
	t.Helper()
	_, text, ok := strings.Cut(page, fmt.Sprintf(begin, name))
	text, _, closed := strings.Cut(text, end)
	if !ok || !closed {
		t.Fatal("the page has no place for the table")
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "|") {
			cells := strings.Split(strings.Trim(line, "| "), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	if len(rows) < 2 {
		t.Fatalf("the table has %d lines", len(rows))
	}
	return rows[0], rows[2:]
}

// The page has a row for each pair of releases that the command tests, in each mode, with every outcome, and describes each column.
func TestPageHasAllReleases(t *testing.T) {
	page := read(t, "docs/compatibility.md")
	required := regexp.MustCompile(`k8s\.io/kubernetes (v\S+)`).FindStringSubmatch(read(t, "kubernetes/go.mod"))
	if required == nil {
		t.Fatal("kubernetes/go.mod does not require k8s.io/kubernetes")
	}
	want := map[string][]string{}
	for _, p := range pairsBeside(required[1]) {
		if p.policy {
			want["policies"] = append(want["policies"], p.server+" "+p.scheduler)
			continue
		}
		for _, m := range modes {
			want["configurations"] = append(want["configurations"], p.server+" "+p.scheduler+" "+m.name)
		}
	}
	for _, table := range new(report).tables() {
		header, rows := written(t, page, table.name)
		named := len(header) - len(table.columns)
		var got []string
		for _, cells := range rows {
			if len(cells) != len(header) {
				t.Fatalf("a row has %d cells, and the header %d", len(cells), len(header))
			}
			got = append(got, strings.Join(cells[:named], " "))
			for _, outcome := range cells[named:] {
				if !slices.Contains([]string{passed, kept, lost, bypassed, waits, runs, ends}, outcome) {
					t.Errorf("%s: outcome %q", cells[:named], outcome)
				}
			}
		}
		if !slices.Equal(got, want[table.name]) {
			t.Errorf("the page has the rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want[table.name], "\n"))
		}
		for i, column := range table.columns {
			if header[named+i] != column || !strings.Contains(page, "\n| "+column+" | ") {
				t.Errorf("column %d is %q, want %q with a description", named+i, header[named+i], column)
			}
		}
	}
}

// The chart installs in clusters of the oldest release whose API server is tested, and later ones.
func TestChartRequiresTheOldestServer(t *testing.T) {
	var chart struct{ KubeVersion string }
	if err := yaml.Unmarshal([]byte(read(t, "deploy/chart/Chart.yaml")), &chart); err != nil {
		t.Fatal(err)
	}
	minor := servers[0][:strings.LastIndexByte(servers[0], '.')]
	if want := fmt.Sprintf(">=%s.0-0", strings.TrimPrefix(minor, "v")); chart.KubeVersion != want {
		t.Errorf("kubeVersion is %q, want %q", chart.KubeVersion, want)
	}
}

// A page has the tables of which all releases were tested; the others stay.
func TestReport(t *testing.T) {
	r := report{day: "2026-03-01"}
	for _, p := range pairsBeside("v1.37.0") {
		row := row{pair: p}
		if p.policy {
			row.outcomes = slices.Repeat([]string{passed}, len(policyScenarios)+len(printedScenarios))
			r.rows = append(r.rows, row)
			continue
		}
		for _, m := range modes {
			row.mode, row.outcomes = m.name, slices.Repeat([]string{passed}, len(scenarios))
			r.rows = append(r.rows, row)
		}
	}
	former := "# Title\n\n"
	for _, t := range r.tables() {
		former += fmt.Sprintf(begin, t.name) + "former " + t.name + "\n" + end + "\nAfter.\n\n"
	}
	page := filepath.Join(t.TempDir(), "page.md")
	write := func(r report) string {
		t.Helper()
		if err := r.write(page); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if err := os.WriteFile(page, []byte(former), 0o600); err != nil {
		t.Fatal(err)
	}
	if text := write(report{day: r.day, rows: r.rows[1:3]}); text != former {
		t.Errorf("after a run of some releases, the page is\n%s", text)
	}
	policies := r.rows[:len(policySchedulers)]
	text := write(report{day: r.day, rows: policies})
	if _, rows := written(t, text, "policies"); len(rows) != 2 || !slices.Equal(rows[0], append([]string{"v1.37.0", "v1.21.14"}, policies[0].outcomes...)) {
		t.Errorf("the rows are %q", rows)
	}
	if !strings.Contains(text, "\nformer configurations\n") || strings.Contains(text, "former policies") {
		t.Errorf("after a run of the releases that read a Policy, the page is\n%s", text)
	}
	write(r)
	text = write(r)
	if strings.Contains(text, "former") || !strings.HasPrefix(text, "# Title\n\n") || strings.Count(text, "\nAfter.\n") != 2 {
		t.Errorf("the page is\n%s", text)
	}
	_, rows := written(t, text, "configurations")
	if want := append([]string{"v1.37.0", "v1.29.6", "names"}, slices.Repeat([]string{passed}, len(scenarios))...); len(rows) != len(r.rows)-2 || !slices.Equal(rows[2], want) {
		t.Errorf("the rows are %q", rows)
	}

	failing := row{pair: pair{server: "v1.37.0", scheduler: "v1.29.6"}, mode: "names", outcomes: []string{failed}, errors: []string{"filter: the event is\n\"other\""}}
	r = report{rows: []row{failing}}
	if text := r.text(); r.failures() != 1 || !strings.HasSuffix(text, "\n\n* kube-scheduler v1.29.6 with kube-apiserver v1.37.0, names: filter: the event is \"other\"\n") {
		t.Errorf("the report with a failure is\n%s", text)
	}
	if err := os.WriteFile(page, []byte("# Title\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.write(page); err == nil || !strings.Contains(err.Error(), "written by make compat") {
		t.Errorf("a page without a place for the table: %v", err)
	}
}

// programs creates a directory kubernetes with programs that report a version, by path.
func programs(t *testing.T, versions map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for path, version := range versions {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho Kubernetes "+version+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPairs(t *testing.T) {
	all := map[string]string{
		"bin/kube-apiserver": "v1.37.0", "bin/kube-scheduler": "v1.37.0",
		"compat/v1.29.6/kube-scheduler":  "v1.29.6",
		"compat/v1.30.14/kube-scheduler": "v1.30.14", "compat/v1.30.14/kube-apiserver": "v1.30.14",
		"compat/v1.22.17/kube-scheduler": "v1.22.17",
	}
	stale := map[string]string{"bin/kube-apiserver": "v1.37.0", "compat/v1.29.6/kube-scheduler": "v1.29.5"}
	for _, tt := range []struct {
		name, only string
		have       map[string]string
		needs      []string
		want       []string // pairs as server/scheduler, or a part of the error
	}{
		{"one older", "v1.29.6", all, []string{"compat/v1.29.6/kube-scheduler"}, []string{"v1.37.0/v1.29.6"}},
		{"with its own server", "v1.30.14", all, []string{"compat/v1.30.14/kube-scheduler", "compat/v1.30.14/kube-apiserver"}, []string{"v1.30.14/v1.30.14", "v1.37.0/v1.30.14"}},
		{"with a Policy", "v1.22.17", all, []string{"compat/v1.22.17/kube-scheduler"}, []string{"v1.37.0/v1.22.17"}},
		{"current", "v1.37.0", all, nil, []string{"v1.37.0/v1.37.0"}},
		{"unknown", "v1.28.1", all, nil, []string{"v1.28.1: not a release to test"}},
		{"another version", "v1.29.6", stale, []string{"compat/v1.29.6/kube-scheduler"}, []string{"compat/v1.29.6/kube-scheduler is v1.29.5"}},
		{"not built", "v1.36.3", all, []string{"compat/v1.36.3/kube-scheduler"}, []string{"no such file"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options{kubernetes: programs(t, tt.have), only: []string{tt.only}}
			if got := o.needs(); !slices.Equal(got, tt.needs) {
				t.Errorf("needs %q, want %q", got, tt.needs)
			}
			pairs, err := o.pairs(t.Context())
			if err != nil {
				if !strings.Contains(err.Error(), tt.want[0]) {
					t.Errorf("error %q, want %q", err, tt.want[0])
				}
				return
			}
			var got []string
			for _, p := range pairs {
				got = append(got, p.server+"/"+p.scheduler)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("the pairs are %q, want %q", got, tt.want)
			}
		})
	}
}

// After a scenario whose time is over, its pods are deleted nevertheless: the next scenario needs their room.
func TestScenarioWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cleaned := false
		err := inTurn(t.Context(), patience, func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, func(ctx context.Context) error {
			cleaned = ctx.Err() == nil
			return errors.New("not deleted")
		})
		if !cleaned {
			t.Error("the second function has no time")
		}
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not deleted") {
			t.Errorf("the error is %v", err)
		}
	})
}

// For whole nodes, nothing but the mode of the printed configuration changes.
func TestMode(t *testing.T) {
	const config = "kind: K\nextenders:\n- {urlPrefix: a, nodeCacheCapable: true}\n- {urlPrefix: b, nodeCacheCapable: true}\n"
	for _, m := range modes {
		s := &scene{mode: m}
		got, err := s.inMode([]byte(config))
		if err != nil {
			t.Fatal(err)
		}
		want := config
		if !m.names {
			want = strings.ReplaceAll(config, "true", "false")
		}
		var a, b map[string]any
		if err := yaml.Unmarshal([]byte(got), &a); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(want), &b); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("with %s the configuration is\n%s", m.name, got)
		}
	}
	s := &scene{mode: mode{names: false}}
	if _, err := s.inMode([]byte("kind: K\n")); err == nil {
		t.Error("a configuration without extenders is accepted")
	}
}
