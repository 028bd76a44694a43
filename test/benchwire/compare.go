package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"outboard.dev/outboard/test/measure"
)

// table is what is measured with all layers, and without one of them at a time: a Go benchmark, or calls to profiles.
type table struct {
	title                    string
	layers                   []layer
	profiles                 []string
	pkg, benchmark, duration string
}

var tables = []table{
	{"filter and prioritize, µs of processor time", wireLayers, []string{cheapProfile, gpuProfile}, "", "", ""},
	{"filter and prioritize, µs of processor time, with LeastWaste", leastWasteLayers, []string{leastWasteProfile}, "", "", ""},
	{"plugin, µs of processor time for an attempt", pluginLayers, nil, "./schedplugin", "^BenchmarkAttempt$/^OneTemplate$", "50x"},
	{"publishing a change, µs of processor time", publishLayers, nil, "./snapshot", "^BenchmarkPublish$/^pod$", "2000x"},
	{"1,000 pending pods and one more assumed pod, µs of processor time", requeueLayers, nil, "./internal/requeue", "^BenchmarkEvaluate$/^assumed$", "20x"},
	{"memory, MiB", memoryLayers, nil, "./internal/cluster", "^BenchmarkMemory$/^no_changes$", "1x"},
}

// variant is a program without a layer, or with all layers if the name is "".
type variant struct {
	name, program, overlay string
	figures                map[string]measure.Figures // by case
}

func runLayers(ctx context.Context, o options, out io.Writer) error {
	matching, err := measure.Matching(tables, o.only, func(t table) string { return t.title })
	if err != nil {
		return err
	}
	for _, t := range matching {
		if err := t.measure(ctx, o, out); err != nil {
			return fmt.Errorf("%s: %w", t.title, err)
		}
	}
	return nil
}

func (t *table) measure(ctx context.Context, o options, out io.Writer) error {
	dir, err := os.MkdirTemp("", "benchwire")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var variants []*variant
	for i, l := range append([]layer{{}}, t.layers...) {
		v, err := t.build(ctx, filepath.Join(dir, strconv.Itoa(i)), l)
		if err != nil {
			return fmt.Errorf("without %q: %w", l.name, err)
		}
		variants = append(variants, v)
	}
	var cases []string
	if t.pkg == "" {
		cases, err = t.replay(ctx, o, variants)
	} else {
		cases, err = t.repeat(ctx, o.rounds, variants)
	}
	if err != nil {
		return err
	}
	return t.report(out, o.rounds, cases, variants)
}

// build builds what measures, without the layer.
func (t *table) build(ctx context.Context, dir string, l layer) (*variant, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	overlay, err := l.without(dir)
	if err != nil {
		return nil, err
	}
	v := &variant{l.name, filepath.Join(dir, "program"), overlay, map[string]measure.Figures{}}
	command := []string{"build", "-ldflags=-s -w", "-overlay", overlay, "-o", v.program, "./test/benchwire"}
	if t.pkg != "" {
		command = []string{"test", "-c", "-ldflags=-s -w", "-overlay", overlay, "-o", v.program, t.pkg}
	}
	if text, err := exec.CommandContext(ctx, "go", command...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	return v, nil
}

// maxCalls is how many calls of a recording a round has.
const maxCalls = 30

// replay plays the recordings to all variants, with each profile.
func (t *table) replay(ctx context.Context, o options, variants []*variant) (cases []string, err error) {
	for _, profile := range t.profiles {
		for _, recording := range recordings {
			path, err := filepath.Abs(filepath.Join(o.data, recording))
			if err != nil {
				return nil, err
			}
			calls, err := readRecording(path, profile)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", recording, err)
			}
			var starts []starting
			for _, v := range variants {
				starts = append(starts, starting{v.name, v.program, outboardArm, profile})
			}
			arms, err := play(ctx, o, calls[:min(len(calls), maxCalls)], path, starts)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", recording, err)
			}
			cases = append(cases, fmt.Sprintf("%s, %d", profile, len(calls[0].names)))
			for i, a := range arms {
				if a.digest.Sum64() != arms[0].digest.Sum64() {
					return nil, fmt.Errorf("%s, %s: the responses are others without %q", profile, recording, a.name)
				}
				for _, spent := range a.rounds {
					variants[i].add(cases[len(cases)-1], spent.pair()/1e3)
				}
			}
		}
	}
	return cases, nil
}

func (v *variant) add(name string, figure float64) { v.figures[name] = append(v.figures[name], figure) }

var (
	benchmarkName = regexp.MustCompile(`^Benchmark\S*/(\S+?)(?:-\d+)?\s`)
	metric        = regexp.MustCompile(`([0-9.]+) (cpu-µs/op|MiB-ready|MiB-live)\s`)
)

// repeat runs the benchmark of all variants, in turn.
func (t *table) repeat(ctx context.Context, rounds int, variants []*variant) (cases []string, err error) {
	for round := range rounds {
		for _, v := range measure.Turn(variants, round) {
			cmd := exec.CommandContext(ctx, v.program, "-test.run", "^$", "-test.bench", t.benchmark, "-test.benchtime", t.duration)
			cmd.Dir, cmd.Stderr = t.pkg, os.Stderr
			cmd.Env = append(os.Environ(), "GOFLAGS=-overlay="+v.overlay) // for a benchmark that builds a program
			out, err := cmd.Output()
			if err != nil {
				return nil, fmt.Errorf("%s: %w: %s", cmd, err, out)
			}
			for line := range strings.Lines(string(out)) {
				name := benchmarkName.FindStringSubmatch(line)
				for _, m := range metric.FindAllStringSubmatch(line, -1) {
					c := strings.TrimSuffix(strings.ReplaceAll(name[1], "_", " ")+" "+m[2], " cpu-µs/op")
					figure, err := strconv.ParseFloat(m[1], 64)
					if err != nil {
						return nil, err
					}
					if v.add(c, figure); !slices.Contains(cases, c) {
						cases = append(cases, c)
					}
				}
			}
		}
	}
	return cases, nil
}

// report prints what was measured with all layers, and without each relative to that, round by round: the median and the range.
func (t *table) report(out io.Writer, rounds int, cases []string, variants []*variant) error {
	fmt.Fprintf(out, "%s: median [range] of %d rounds; without a layer ÷ with all layers of the same round\n", t.title, rounds)
	rows := measure.NewTable(out, append([]string{""}, cases...)...)
	for i, v := range variants {
		name, format := "all layers", "%.0f"
		if i > 0 {
			name, format = "without: "+v.name, "%.2f"
		}
		cells := []any{name}
		for _, c := range cases {
			figures := slices.Clone(v.figures[c])
			for round, with := range variants[0].figures[c] {
				if i > 0 {
					figures[round] /= with
				}
			}
			cells = append(cells, figures.Spread(format))
		}
		rows.Row(cells...)
	}
	return rows.Flush()
}
