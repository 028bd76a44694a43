package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"outboard.dev/outboard/simulate"
)

// gpuTable is the output of outboard gpus.
type gpuTable struct {
	unit string
	gpus []gpu
}

type gpu struct {
	node           string
	index          int
	free, capacity int64
	pods           []share
}

// share is how much of a GPU a pod has, or requests.
type share struct {
	pod    string
	amount int64
}

const (
	gpuPage  = "docs/sharing-gpus.md"
	gpuPods  = "examples/gpu-sharing/pods.yaml"
	gpuUnits = "aliyun.com/gpu-mem"
)

// gpuPicture returns the picture of the GPUs of examples/gpu-sharing, as SVG: the table in docs/sharing-gpus.md, which a test
// compares with the output of a real cluster, and the pods of the example that are not in it, because they wait.
func gpuPicture(root string) (string, error) {
	page, err := os.ReadFile(filepath.Join(root, gpuPage))
	if err != nil {
		return "", err
	}
	table, err := readGPUs(string(page))
	if err != nil {
		return "", fmt.Errorf("%s: %w", gpuPage, err)
	}
	file, err := os.Open(filepath.Join(root, gpuPods))
	if err != nil {
		return "", err
	}
	defer file.Close()
	objects, err := simulate.ReadManifests(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", gpuPods, err)
	}
	var waiting []share
	for _, pod := range objects.Pods {
		if !table.has(pod.Name) {
			quantity := pod.Spec.Containers[0].Resources.Limits[gpuUnits]
			waiting = append(waiting, share{pod.Name, quantity.Value()})
		}
	}
	if len(waiting) == 0 {
		return "", fmt.Errorf("%s: no pod waits", gpuPods)
	}
	return drawGPUs(table, waiting), nil
}

var podShare = regexp.MustCompile(`[^\s/]+/(\S+) \((\d+)\)`)

// readGPUs returns the table after the command outboard gpus in a page.
func readGPUs(page string) (*gpuTable, error) {
	_, after, found := strings.Cut(page, "$ outboard gpus\n")
	if !found {
		return nil, fmt.Errorf("no block begins with $ outboard gpus")
	}
	text, _, _ := strings.Cut(after, "```")
	header, rows, _ := strings.Cut(text, "\n")
	names := strings.Fields(header)
	if len(names) != 8 || !slices.Equal(names[:6], []string{"NODE", "GPU", "USED", "RESERVED", "FREE", "OF"}) {
		return nil, fmt.Errorf("outboard gpus has the columns %q", names)
	}
	table := &gpuTable{unit: names[6]}
	for row := range strings.Lines(rows) {
		cells := strings.Fields(row)
		if len(cells) > 0 && cells[0] == "all" {
			continue
		}
		numbers := make([]int64, 6) // by column; the first is the name of the node
		if len(cells) < len(numbers) {
			return nil, fmt.Errorf("row %q has too few columns", row)
		}
		for i := 1; i < len(numbers); i++ {
			var err error
			if numbers[i], err = strconv.ParseInt(cells[i], 10, 64); err != nil {
				return nil, fmt.Errorf("row %q: %w", row, err)
			}
		}
		g := gpu{node: cells[0], index: int(numbers[1]), free: numbers[4], capacity: numbers[5]}
		for _, m := range podShare.FindAllStringSubmatch(row, -1) {
			amount, err := strconv.ParseInt(m[2], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("row %q: %w", row, err)
			}
			g.pods = append(g.pods, share{m[1], amount})
		}
		table.gpus = append(table.gpus, g)
	}
	return table, nil
}

func (t *gpuTable) has(pod string) bool {
	return slices.ContainsFunc(t.gpus, func(g gpu) bool {
		return slices.ContainsFunc(g.pods, func(s share) bool { return s.pod == pod })
	})
}

// Measures of the picture, in pixels.
const (
	gpuWidth, gpuGap, nodeGap = 88.0, 8.0, 24.0
	gpuMargin, gpuHead        = 22.0, 84.0
	unitHeight                = 4.0 // of one unit of memory
	gpuFoot                   = 62.0
)

// gpuStyle has two sets of colors, for readers with a light and with a dark background. The picture has a background of its
// own, so each set is readable on any page.
const gpuStyle = `<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; text-anchor: middle }
.title { font-size: 16px; font-weight: 600; text-anchor: start }
.note { text-anchor: start }
.note, .size, .free { fill: #59636e }
.node { font-size: 13px; font-weight: 600 }
.pod { fill: #fff; font-size: 11px }
.back { fill: #f6f8fa; stroke: #d1d9e0 }
.gpu { fill: #fff; stroke: #818b98 }
.line { stroke: #818b98 }
.wait { fill: none; stroke: #c0392b; stroke-width: 2; stroke-dasharray: 6 4 }
.waits { fill: #c0392b; font-weight: 600 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.note, .size, .free { fill: #9198a1 }
.pod { fill: #fff }
.back { fill: #161b22; stroke: #3d444d }
.gpu { fill: #0d1117; stroke: #656c76 }
.line { stroke: #656c76 }
.wait { stroke: #ff7b72 }
.waits { fill: #ff7b72 }
}
</style>`

// podColors are readable below white text, and distinguishable with color blindness.
var podColors = []string{"#0067a6", "#007a5a", "#a8470f", "#8a3f7d", "#5f5f00"}

// colorOf returns the color of a pod. Pods whose names differ in a number at the end have the same.
func colorOf(pod string, kinds *[]string) string {
	kind := strings.TrimRight(pod, "-0123456789")
	i := slices.Index(*kinds, kind)
	if i < 0 {
		i, *kinds = len(*kinds), append(*kinds, kind)
	}
	return podColors[i%len(podColors)]
}

// drawGPUs draws each GPU as a column as high as its memory, filled by its pods, and beside them the waiting pods.
func drawGPUs(table *gpuTable, waiting []share) string {
	var free, capacity, tallest int64
	width := 2*gpuMargin - gpuGap
	for i, g := range table.gpus {
		free, capacity, tallest = free+g.free, capacity+g.capacity, max(tallest, g.capacity)
		if width += gpuWidth + gpuGap; i > 0 && g.node != table.gpus[i-1].node {
			width += nodeGap - gpuGap
		}
	}
	width += nodeGap + float64(len(waiting))*(gpuWidth+gpuGap) - gpuGap
	bottom := gpuHead + unitHeight*float64(tallest)
	d := &drawing{bottom: bottom}
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img">`, width, bottom+gpuFoot)
	title := fmt.Sprintf("%d of %d %s are free, and %s waits for %d", free, capacity, table.unit, waiting[0].pod, waiting[0].amount)
	d.add("<title>%s</title>\n%s", html.EscapeString(title), gpuStyle)
	d.add(`<rect class="back" x="0.5" y="0.5" width="%.0f" height="%.0f" rx="8"/>`, width-1, bottom+gpuFoot-1)
	d.add(`<text class="title" x="%.0f" y="32">%s</text>`, gpuMargin, html.EscapeString(title))
	d.add(`<text class="note" x="%.0f" y="54">Each column is a GPU, as high as its memory. A pod gets its share from one GPU, and no GPU has %d %s free.</text>`,
		gpuMargin, waiting[0].amount, table.unit)
	d.nodes(table)
	d.x += nodeGap - gpuGap
	for _, s := range waiting {
		top := bottom - unitHeight*float64(s.amount)
		d.add(`<rect class="wait" x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="3"/>`, d.x, top, gpuWidth, bottom-top)
		d.add(`<text class="waits" x="%.0f" y="%.0f">%s</text>`, d.x+gpuWidth/2, (top+bottom)/2-4, html.EscapeString(s.pod))
		d.add(`<text class="waits" x="%.0f" y="%.0f">%d %s</text>`, d.x+gpuWidth/2, (top+bottom)/2+12, s.amount, table.unit)
		d.add(`<text class="node" x="%.0f" y="%.0f">pending</text>`, d.x+gpuWidth/2, bottom+48)
		d.x += gpuWidth + gpuGap
	}
	d.add("</svg>")
	return d.String()
}

// drawing is an SVG that grows from left to right.
type drawing struct {
	strings.Builder
	x, bottom float64
	kinds     []string // of pods, for their colors
}

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

// nodes draws the GPUs of all nodes, and their names below.
func (d *drawing) nodes(table *gpuTable) {
	d.x = gpuMargin
	left := d.x
	for i, g := range table.gpus {
		d.gpu(&g, table.unit)
		d.x += gpuWidth + gpuGap
		if i+1 < len(table.gpus) && table.gpus[i+1].node == g.node {
			continue
		}
		right := d.x - gpuGap
		d.add(`<path class="line" d="M%.0f %.1fH%.0f"/>`, left, d.bottom+33.5, right)
		d.add(`<text class="node" x="%.0f" y="%.0f">node %s</text>`, (left+right)/2, d.bottom+48, html.EscapeString(g.node))
		d.x += nodeGap - gpuGap
		left = d.x
	}
	d.x -= nodeGap - gpuGap
}

// gpu draws one GPU: its pods from the bottom up, and what is free above them.
func (d *drawing) gpu(g *gpu, unit string) {
	middle, top := d.x+gpuWidth/2, d.bottom-unitHeight*float64(g.capacity)
	d.add(`<rect class="gpu" x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="3"/>`, d.x, top, gpuWidth, d.bottom-top)
	y := d.bottom
	for _, s := range g.pods {
		height := unitHeight * float64(s.amount)
		y -= height
		d.add(`<rect x="%.1f" y="%.0f" width="%.0f" height="%.0f" rx="2" fill="%s"/>`, d.x+1.5, y+1, gpuWidth-3, height-2, colorOf(s.pod, &d.kinds))
		d.add(`<text class="pod" x="%.0f" y="%.0f">%s %d</text>`, middle, y+height/2+4, html.EscapeString(s.pod), s.amount)
	}
	if g.free > 0 {
		d.add(`<text class="free" x="%.0f" y="%.0f">%d free</text>`, middle, (y+top)/2+4, g.free)
	}
	d.add(`<text class="size" x="%.0f" y="%.0f">%d %s</text>`, middle, d.bottom+18, g.capacity, unit)
}
