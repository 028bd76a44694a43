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
	for i, milli := range []int{460, 700, 300, 1000, 550} {
		pods += fmt.Sprintf("pod-%d,4000,1024,1,%d,,LS,Running,%d,%d,%d\n", i, milli, 100*i, 100*i+3600, 100*i)
	}
	for name, text := range map[string]string{"openb_node_list_gpu_node.csv": nodes, "openb_pod_list_default.csv": pods} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestBenchPlacement(t *testing.T) {
	o := &options{data: trace(t), pictures: t.TempDir(), seeds: 2, nodes: 5, hours: 8}
	report := func() string {
		var out, progress bytes.Buffer
		if err := run(t.Context(), o, &out, &progress); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Count(progress.String(), "\n"), 2*len(contenders)*(len(samplings)+1); got != want {
			t.Errorf("progress tells of %d runs, want %d:\n%s", got, want, &progress)
		}
		return out.String()
	}
	text := report()
	for _, c := range contenders {
		for _, s := range samplings {
			if !strings.Contains(text, "\n"+c.name+", "+s.name+" ") {
				t.Errorf("there is no line for %s, %s:\n%s", c.name, s.name, text)
			}
		}
	}
	if !strings.Contains(text, "Filling 5 nodes, 2 seeds:") || !strings.Contains(text, "served %") {
		t.Errorf("it says\n%s", text)
	}
	for _, s := range samplings {
		picture, err := os.ReadFile(filepath.Join(o.pictures, fmt.Sprintf("placement-%d.svg", s.percentage)))
		if err != nil || !bytes.Contains(picture, []byte("</svg>")) {
			t.Errorf("the picture for %s: %v", s.name, err)
		}
	}
	if again := report(); again != text {
		t.Errorf("first it says\n%s\nthen\n%s", text, again)
	}
}

func TestBenchPlacementStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := trace(t)
	if err := run(ctx, &options{data: dir, pictures: t.TempDir(), seeds: 1, hours: 1}, io.Discard, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("when it is interrupted: %v", err)
	}
	if err := run(t.Context(), &options{data: t.TempDir(), seeds: 1, hours: 1}, io.Discard, io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a trace: %v", err)
	}
	if err := run(t.Context(), &options{data: dir, hours: 1}, io.Discard, io.Discard); err == nil {
		t.Error("no seeds are accepted")
	}
}
