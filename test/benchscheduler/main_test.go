package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/policies/standard"
)

// Arms start this program again, as another extender.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serveArgument {
		if err := serve(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// The command measures a few pods on a few nodes, with a real control plane.
func TestBenchScheduler(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	results := filepath.Join(t.TempDir(), "results.json")
	o, err := parse([]string{"-nodes", "30", "-arms", "stock,outboard-8,ideal-1", "-rounds", "1", "-pods", "300", "-o", results, "-limit", "2m"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.interval = 10 * time.Millisecond
	var out, progress bytes.Buffer
	err = o.run(ctx, &out, &progress)
	t.Logf("%s%s", &progress, &out)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(results)
	if err != nil {
		t.Fatal(err)
	}
	var all []result
	if err := json.Unmarshal(text, &all); err != nil || len(all) != 3 {
		t.Fatalf("%d results, want 3 (%v):\n%s", len(all), err, text)
	}
	for i, r := range all {
		if r.Pods == 0 || r.PodsPerSecond <= 0 || r.Scheduler <= 0 || r.APIServer <= 0 || r.Etcd <= 0 || r.Filter <= 0 || r.AttemptP99 < r.AttemptP50 || r.Failed != 0 {
			t.Errorf("%+v", r)
		}
		if r.NodesUsed < 1 || r.NodesUsed > 30 || r.MostOnOne*r.NodesUsed < r.Pods {
			t.Errorf("%s: the pods are on %d nodes, at most %d on one", r.Arm, r.NodesUsed, r.MostOnOne)
		}
		if (r.Extender > 0) != (i > 0) {
			t.Errorf("%s: the extender takes %f ms for each pod", r.Arm, r.Extender)
		}
	}
}

// An arm whose pods are not placed, here because the node is full, is an error, and has no figure.
func TestTooSlowToMeasure(t *testing.T) {
	o, err := parse([]string{"-outboard", "not started", "-nodes", "1", "-running", "130", "-arms", "stock", "-rounds", "1", "-pods", "1", "-limit", "1ms"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	err = o.run(t.Context(), io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "too few to measure") {
		t.Errorf("the error is %v", err)
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		args string
		want string // the settings, or the error
	}{
		{"-nodes 10,20 -percentages 0,100", "10/0/1/1000 10/100/1/400 20/0/1/1000 20/100/1/400"},
		{"-quick", "5000/0/1/1000 5000/100/1/400"},
		{"-quick -pods 7 -templates 9", "5000/0/9/7"},
		{"-arms stock,ideal -nodes 3", "3/0/1/1000"},
		{"-candidates", "5000/0/1/3000 5000/100/1/3000 5000/0/100/3000 5000/100/100/3000 5000/0/1/3000 5000/0/1/3000 5000/0/1/3000 5000/0/1/3000 5000/100/1/3000 5000/0/100/3000"},
		{"-candidates -kinds gpu,restricted -nodes 20 -pods 5", "20/0/1/5 20/0/1/5"},
		{"-kinds gpu", `no setting has pods of the kind "gpu"`},
		{"-arms stock,fast", `there is no arm "fast"`},
		{"-nodes ten", `"ten" is not a number`},
		{"-nodes 0", "cannot be measured"},
		{"-percentages 101", "cannot be measured"},
		{"-rounds -1", "must be positive"},
		{"-limit 0s", "must be positive"},
		{"fast", `unexpected argument "fast"`},
	} {
		o, err := parse(strings.Fields(tt.args), io.Discard)
		if err != nil {
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %s", tt.args, err, tt.want)
			}
			continue
		}
		var got []string
		for _, s := range o.plan {
			got = append(got, fmt.Sprintf("%d/%d/%d/%d", s.nodes, s.percentage, s.templates, s.pods))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %s, want %s", tt.args, got, tt.want)
		}
	}
	if _, err := parse([]string{"-help"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help: %v", err)
	}
}

func TestSelectionKeepsArms(t *testing.T) {
	o, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.plan) != len(fullPlan) || len(o.plan[0].arms) != len(fullPlan[0].arms) || o.rounds != 3 {
		t.Errorf("without arguments, %d rounds of %v are measured", o.rounds, o.plan)
	}
	if o, err = parse([]string{"-arms", "ideal,outboard", "-quick"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if a := o.plan[1].arms; len(a) != 2 || a[0].name != "ideal" || a[1].name != "outboard" || o.rounds != 2 {
		t.Errorf("%d rounds of %v are measured", o.rounds, a)
	}
}

// Each arm matches its name, and its configuration of Outboard is valid.
func TestArms(t *testing.T) {
	o := &options{scheduler: "kube-scheduler-outboard", idealScheduler: "ideal-scheduler"}
	for name, want := range map[string]string{"stock": "", "outboard": "", "plugin": o.scheduler, "ideal-plugin": o.idealScheduler} {
		if got := o.program(mustArm(name)); got != want {
			t.Errorf("%s runs %q, want %q", name, got, want)
		}
	}
	types := config.Types{Policies: standard.Types()}
	for _, a := range arms {
		scheduler, err := a.schedulerConfig(setting{percentage: 100}, unlimited, "http://127.0.0.1:1", "127.0.0.1:2")
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []struct {
			text string
			want bool
		}{
			{"urlPrefix: http://127.0.0.1:1", a.extender != none},
			{"filterVerb: filter", a.extender != none && !a.noFilter},
			{"nodeCacheCapable: true", a.extender != none && !a.fullNodes},
			{"percentageOfNodesToScore: 100", a.percentage == 0},
			{"defaultingType: List", a.batching},
			{"type: PodLimit", a.plugin},
			{"candidates: ", a.candidates > 0},
			{"postFilter:", a.candidates > 0 && !a.idealPlugin},
			{"address: 127.0.0.1:2", a.plugin},
		} {
			if got := strings.Contains(scheduler, part.text); got != part.want {
				t.Errorf("%s: contains %q is %t:\n%s", a.name, part.text, got, scheduler)
			}
		}
		if a.extender != outboard {
			continue
		}
		path := filepath.Join(t.TempDir(), "outboard.yaml")
		text, err := a.outboardConfig(setting{}, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path, types)
		if err != nil {
			t.Fatalf("%s: %v\n%s", a.name, err, text)
		}
		shortlist := 0
		if k := c.Profiles[0].Shortlist; k != nil {
			shortlist = *k
		}
		if shortlist != a.shortlist || !c.Admin.Pprof {
			t.Errorf("%s:\n%s", a.name, text)
		}
	}
}

func TestReport(t *testing.T) {
	s := newSetting(5000, 0, 1, "stock", "outboard", "outboard-8-low")
	at := func(a string, round int, speed, filter float64) result {
		return result{Arm: a, Round: round, PodsPerSecond: speed, Filter: filter, Scheduler: 3, Extender: 1, AttemptP50: 5, AttemptP99: 50}
	}
	var out bytes.Buffer
	err := report(&out, s, []result{
		at("stock", 0, 100, 1), at("outboard", 0, 50, 1), at("outboard-8-low", 0, 80, 0.2),
		at("stock", 1, 200, 0.5), at("outboard", 1, 40, 1.5), at("outboard-8-low", 1, 90, 0.2),
		at("stock", 2, 100, 1), at("outboard", 2, 70, 1),
		at("outboard-8-low", 3, 1000, 1), // interrupted before stock
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"5000 nodes, default sampling, pods of one template\n",
		"stock           3  100 [100–200]  1.00 [1.00–1.00]  1.00 [1.00–1.00]",
		"outboard        3  50 [40–70]     0.50 [0.20–0.70]  0.60 [0.50–0.70]",
		"outboard-8-low  3  85 [80–90]     0.62 [0.45–0.80]  –",
		"5.0, 50.0",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}

// Nodes and pods have the sizes of real ones.
func TestSizes(t *testing.T) {
	for _, tt := range []struct {
		object   any
		from, to int
	}{{newNode(4999), 8 << 10, 14 << 10}, {newPod(7, 100, plain), 600, 4 << 10}, {newRunningPod(7, 100), 600, 4 << 10}} {
		text, err := json.Marshal(tt.object)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) < tt.from || len(text) > tt.to {
			t.Errorf("%d bytes, want %d to %d: %s", len(text), tt.from, tt.to, text)
		}
	}
	if a, b := newPod(1, 2, plain), newPod(3, 2, plain); a.Name == b.Name || a.Spec.Containers[0].Image != b.Spec.Containers[0].Image {
		t.Error("pods 1 and 3 are not two pods of one template")
	}
}
