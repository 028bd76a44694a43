package replay

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"outboard.dev/outboard/bench/trials"
)

const (
	pictureWidth      = 860.0
	left, right, top  = 130.0, 840.0, 62.0
	barHeight, rowGap = 15.0, 16.0
	// Waits are drawn on a logarithmic scale between these, in seconds; shorter ones at the minimum.
	minWait, maxWait = 0.1, 50000.0
)

// colors are distinguishable with color blindness, too.
var colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

// Picture draws, as SVG, how long pods of each size that request GPUs were pending: for each name a
// bar up to the mean over its results, a dot for the mean of each result, and a line at the mean p99.
func Picture(w io.Writer, names []string, results [][]*Result) error {
	x := func(wait time.Duration) float64 {
		seconds := min(max(wait.Seconds(), minWait), maxWait)
		return left + (right-left)*math.Log(seconds/minWait)/math.Log(maxWait/minWait)
	}
	sizes := PodSizes[1:]
	rowHeight := barHeight*float64(len(names)) + rowGap
	bottom := top + rowHeight*float64(len(sizes))
	height := bottom + 52 + 20*float64(len(names))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="13">`+"\n", pictureWidth, height)
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" fill="white"/>`+"\n", pictureWidth, height)
	fmt.Fprintf(&b, `<text x="20" y="22" font-size="16" font-weight="bold">How long pods wait, by what they request</text>`+"\n")
	fmt.Fprintf(&b, `<text x="20" y="44" fill="#444">bars: mean over %d seeds; dots: the mean of each seed; lines: mean of the 99th percentiles</text>`+"\n", len(results[0]))
	for _, tick := range []struct {
		wait time.Duration
		text string
	}{
		{time.Second / 10, "0.1 s"}, {time.Second, "1 s"}, {10 * time.Second, "10 s"}, {time.Minute, "1 min"},
		{10 * time.Minute, "10 min"}, {time.Hour, "1 h"}, {10 * time.Hour, "10 h"},
	} {
		at := x(tick.wait)
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n",
			at, at, top, bottom, at, bottom+18, tick.text)
	}
	for row, size := range sizes {
		y := top + rowHeight*float64(row) + rowGap/2
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n", left-10, y+barHeight*float64(len(names))/2+4, size)
		for i := range names {
			means, p99s := ofSize(results[i], row+1)
			if len(means) == 0 {
				continue
			}
			color, middle := colors[i%len(colors)], y+barHeight/2
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity="0.45"/>`+"\n", left, y+1, x(mean(means))-left, barHeight-2, color)
			for _, m := range means {
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`+"\n", x(m), middle, color)
			}
			at := x(mean(p99s))
			fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s" stroke-width="3"/>`+"\n", at, at, y+1, y+barHeight-1, color)
			y += barHeight
		}
	}
	for i, name := range names {
		y := bottom + 44 + 20*float64(i)
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="20" height="12" fill="%s" fill-opacity="0.45"/><text x="%.1f" y="%.1f">%s</text>`+"\n",
			left, y-10, colors[i%len(colors)], left+28, y, html.EscapeString(name))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// ofSize returns the mean and the p99 of the waits of pods of the size, for each result with such pods.
func ofSize(results []*Result, size int) (means, p99s []time.Duration) {
	for _, r := range results {
		if waits := slices.Sorted(slices.Values(r.Waits[size])); len(waits) > 0 {
			means = append(means, mean(waits))
			p99s = append(p99s, trials.Quantile(waits, 0.99))
		}
	}
	return means, p99s
}

// mean returns the mean of durations, of which there is at least one.
func mean(of []time.Duration) time.Duration {
	sum := 0.0
	for _, d := range of {
		sum += d.Seconds() / float64(len(of))
	}
	return time.Duration(sum * float64(time.Second))
}
