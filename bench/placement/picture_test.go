package main

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/simulate"
)

// drawn returns the picture, which is well-formed and draws everything within its frame.
func drawn(t *testing.T, p *picture) string {
	t.Helper()
	var b strings.Builder
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	svg := b.String()
	for decoder := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Errorf("the picture has an invalid number:\n%s", svg)
	}
	for _, m := range regexp.MustCompile(`([-\d.]+),([-\d.]+)`).FindAllStringSubmatch(strings.Join(points.FindAllString(svg, -1), " "), -1) {
		x, _ := strconv.ParseFloat(m[1], 64)
		y, _ := strconv.ParseFloat(m[2], 64)
		if x < chartLeft-0.1 || x > chartLeft+chartWidth+0.1 || y < chartTop-0.1 || y > chartTop+chartHeight+0.1 {
			t.Errorf("a line goes to %v, %v, outside the chart", x, y)
		}
	}
	return svg
}

var points = regexp.MustCompile(`points="[^"]*"`)

func contains(t *testing.T, svg string, texts ...string) {
	t.Helper()
	for _, want := range texts {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture does not contain %q", want)
		}
	}
}

func TestPicture(t *testing.T) {
	ends := func(at float64, gpus ...float64) *simulate.Filled {
		return &simulate.Filled{Curve: []simulate.Point{{}, {Arrived: at, Allocated: at}, {Arrived: 1.3, Allocated: at}}, GPUs: gpus}
	}
	p := &picture{
		Arms: []simulate.Arm{
			{Name: "a<b", Filled: []*simulate.Filled{ends(0.9, 1, 0.2), ends(0.95, 1, 0.5), ends(1, 1, 1)}},
			{Name: "c", Filled: []*simulate.Filled{ends(1, 1, 1), ends(1, 1, 1), ends(1, 1, 1)}},
		},
		Until: 1.3, Resource: "example.com/gpu-mem", Nodes: 1, FirstSeed: 42,
	}
	contains(t, drawn(t, p),
		"Allocation of example.com/gpu-mem as pods arrive", "1 nodes, 2 GPUs; lines are means over the seeds 42 to 44",
		"requested by the pods that have arrived, % of the capacity", "allocated, % of the capacity",
		"a&lt;b: 95.00 % at the end (90.00 to 100.00)", "c: 100.00 % at the end (100.00 to 100.00)",
		"</tspan>: 0.5 GPUs free, on 1 GPUs (seed 43)", "</tspan>: 0.0 GPUs free, on 0 GPUs")
}
