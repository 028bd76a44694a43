package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/simulate"
)

// trace writes a small trace: 6 nodes with two GPUs, and pods of several sizes.
func trace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	nodes := "sn,cpu_milli,memory_mib,gpu,model\n"
	for i := range 6 {
		nodes += fmt.Sprintf("node-%d,64000,262144,2,P100\n", i)
	}
	pods := "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
	for i, gpus := range []string{"1,460", "1,700", "1,300", "1,1000", "1,550", "2,1000", "0,0"} {
		pods += fmt.Sprintf("pod-%d,4000,1024,%s,,LS,Running,%d,%d,%d\n", i, gpus, 100*i, 100*i+3600, 100*i)
	}
	for name, text := range map[string]string{"openb_node_list_gpu_node.csv": nodes, "openb_pod_list_default.csv": pods} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestBenchPlacement(t *testing.T) {
	o := &options{data: trace(t), pods: simulate.OpenBPods, pictures: t.TempDir(), seeds: 2, nodes: 5, hours: 8, parts: "departures,wire,sampling,mixes,first-fit"}
	report := func() string {
		var out, progress bytes.Buffer
		if err := run(t.Context(), o, &out, &progress); err != nil {
			t.Fatal(err)
		}
		want := 2 * 5 // of pods that come and go
		for _, part := range fillings() {
			for _, f := range part {
				want += 2 * len(f.contenders)
			}
		}
		if got := strings.Count(progress.String(), "\n"); got != want {
			t.Errorf("the progress shows %d runs, want %d:\n%s", got, want, &progress)
		}
		return out.String()
	}
	text := report()
	for _, part := range fillings() {
		for _, f := range part {
			_, table, found := strings.Cut(text, "\nFilling 5 nodes, 2 seeds; "+f.title+":\n")
			for _, c := range f.contenders {
				if !found || !strings.Contains(table, "\n"+c.name+" ") {
					t.Errorf("there is no line for %s, %s:\n%s", c.name, f.title, text)
				}
			}
			if f.picture == "" {
				continue
			}
			picture, err := os.ReadFile(filepath.Join(o.pictures, f.picture))
			if err != nil || !bytes.Contains(picture, []byte("</svg>")) {
				t.Errorf("the image for %s: %v", f.title, err)
			}
		}
	}
	if !strings.Contains(text, "served %") {
		t.Errorf("the output is\n%s", text)
	}
	if again := report(); again != text {
		t.Errorf("the first output is\n%s\nthe second is\n%s", text, again)
	}
}

// Each decider keeps the use of the cluster constant, and allocates nothing twice.
func TestDecisions(t *testing.T) {
	w, jobs, err := read(&options{data: trace(t), pods: simulate.OpenBPods})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range deciders {
		h := newHeld(w, jobs, 30)
		decider, err := d.new(h)
		if err != nil {
			t.Fatal(err)
		}
		before := h.count
		took, err := h.play(t.Context(), decider, 300)
		if err != nil || len(took) != 300 {
			t.Fatalf("%s: %d decisions, %v", d.name, len(took), err)
		}
		used := int64(0)
		for i, n := range h.nodes {
			for _, g := range n.GPUs {
				if g.Free < 0 || g.Free > g.Size {
					t.Errorf("%s: node %d has %+v", d.name, i, n.GPUs)
				}
				used += g.Size - g.Free
			}
		}
		if low := h.target() - 1000; used != h.used || used < low {
			t.Errorf("%s: %d is used, and reported as %d, of at least %d", d.name, used, h.used, low)
		}
		if h.count < before+100 {
			t.Errorf("%s placed %d pods", d.name, h.count-before)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), &options{data: trace(t), pods: simulate.OpenBPods, seeds: 1, hours: 1, parts: "decisions", sizes: []int{6}, decisions: 50}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, d := range deciders {
		if !strings.Contains(out.String(), d.name) {
			t.Errorf("%s is not in\n%s", d.name, &out)
		}
	}
}

// The drawn pods request what the mix defines.
func TestMixes(t *testing.T) {
	w, jobs, err := read(&options{data: trace(t), pods: simulate.OpenBPods})
	if err != nil {
		t.Fatal(err)
	}
	var many []simulate.Job
	for range 400 {
		many = append(many, jobs...)
	}
	for _, m := range mixes {
		drawn := m.draw(many, w.Nodes)
		var asked [classes]float64
		all, restricted, withGPUs, without := 0.0, 0.0, 0.0, 0.0
		for _, j := range drawn {
			asked[classOf(j.Pod)] += float64(gpuUnits(j.Pod))
			if all += float64(gpuUnits(j.Pod)); gpuUnits(j.Pod) == 0 {
				without++
				continue
			}
			withGPUs++
			if j.Pod.Annotations[modelAnnotation] != "" {
				restricted++
			}
		}
		near := func(what string, got, want float64) {
			if got < want*0.9-0.002 || got > want*1.1+0.002 {
				t.Errorf("%s: %s is %.3f, want %.3f", m.name, what, got, want)
			}
		}
		if m.share > 0 {
			near("what is asked in shares", asked[shares]/all, m.share)
		}
		if m.several > 0 {
			near("what pods with several ask for", asked[several]/all, m.several)
		}
		if m.cpuOnly > 0 {
			near("pods without GPUs beside others", without/withGPUs, m.cpuOnly/6)
		}
		near("restricted pods", restricted/withGPUs, m.restricted)
	}
}

func TestBenchPlacementStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := trace(t)
	if err := run(ctx, &options{data: dir, pods: simulate.OpenBPods, pictures: t.TempDir(), seeds: 1, hours: 1, parts: "sampling"}, io.Discard, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("when it is interrupted: %v", err)
	}
	if err := run(t.Context(), &options{data: t.TempDir(), pods: simulate.OpenBPods, seeds: 1, hours: 1, parts: "wire"}, io.Discard, io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a trace: %v", err)
	}
	if err := run(t.Context(), &options{data: dir, pods: simulate.OpenBPods, hours: 1}, io.Discard, io.Discard); err == nil {
		t.Error("zero seeds cause no error")
	}
	if err := run(t.Context(), &options{data: dir, pods: simulate.OpenBPods, seeds: 1, hours: 1, parts: "wire,sample"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "sample") {
		t.Errorf("an unknown part: %v", err)
	}
}
