package main

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"

	"outboard.dev/outboard/internal/simulate"
)

// picture shows how clusters filled up.
type picture struct {
	Arms  []simulate.Arm
	Until float64
	// Resource is the measured resource, and Nodes the number of nodes.
	Resource string
	Nodes    int
	// FirstSeed is the first seed; the others are the numbers after it.
	FirstSeed uint64
}

const (
	pictureWidth            = 860.0
	chartLeft, chartTop     = 64.0, 62.0
	chartWidth, chartHeight = 770.0, 320.0
	panelsTop               = chartTop + chartHeight + 82
	panelWidth, panelGap    = 372.0, 26.0
	captionHeight           = 26.0
	// panelArea is the area, in pixels, of the GPUs of one arm, if the size of their squares
	// permits.
	panelArea            = panelWidth * 110
	minSquare, maxSquare = 4.0, 16.0 // the side of the square of a GPU
	curvePoints          = 300
)

// colors are distinguishable with color blindness, too.
var colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// scale converts values to positions in the chart.
type scale struct{ fromX, toX, fromY, toY float64 }

func (s *scale) x(arrived float64) float64 {
	return chartLeft + chartWidth*(arrived-s.fromX)/(s.toX-s.fromX)
}

func (s *scale) y(allocated float64) float64 {
	return chartTop + chartHeight*(s.toY-min(max(allocated, s.fromY), s.toY))/(s.toY-s.fromY)
}

// scale returns a scale that shows the differences between the arms. A cluster that is empty at
// first allocates everything that comes for a long time; the chart shows only the end of that.
func (p *picture) scale() scale {
	s := scale{0, p.Until, 0.95, 1}
	began := false
	for _, arm := range p.Arms {
		for _, f := range arm.Filled {
			first, last := f.Curve[0].Allocated, f.Curve[len(f.Curve)-1].Allocated
			s.toY = max(s.toY, last)
			if began = began || first > 0; first > 0 {
				s.fromY = min(s.fromY, first)
			}
			s.fromY = min(s.fromY, f.At(0.6*p.Until))
		}
	}
	s.fromY = math.Floor(20*s.fromY) / 20
	if !began {
		s.fromX = s.fromY
	}
	return s
}

// Write draws, as SVG, one line for each arm, the mean over the seeds with their range, and below
// the final state of each cluster, one square for each GPU: black if it is full, and brighter the
// more of it is free. That is the cluster of the seed nearest to the mean.
func (p *picture) Write(w io.Writer) error {
	var b strings.Builder
	panels := panelsHeight(p.Arms)
	height := panelsTop + panels
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="13">`+"\n", pictureWidth, height)
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" fill="white"/>`+"\n", pictureWidth, height)
	p.titles(&b)
	s := p.scale()
	axes(&b, &s)
	for i := range p.Arms {
		p.line(&b, &s, i)
	}
	p.legend(&b)
	fmt.Fprintf(&b, `<text x="%.0f" y="%.0f">The GPUs at the end: black is full; the brighter, the more of the GPU is free.</text>`+"\n", chartLeft-36, panelsTop-10)
	y := panelsTop
	for i := range p.Arms {
		if i%2 == 0 && i > 0 {
			y += rowHeight(p.Arms, i-2)
		}
		p.panel(&b, i, chartLeft-36+float64(i%2)*(panelWidth+panelGap), y)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (p *picture) titles(b *strings.Builder) {
	fmt.Fprintf(b, `<text x="%.0f" y="22" font-size="16" font-weight="bold">Allocation of %s as pods arrive</text>`+"\n", chartLeft, html.EscapeString(p.Resource))
	subtitle := fmt.Sprintf("%d nodes, %d GPUs; ", p.Nodes, len(p.Arms[0].Filled[0].GPUs))
	if seeds := len(p.Arms[0].Filled); seeds > 1 {
		subtitle += fmt.Sprintf("lines are means over the seeds %d to %d, shades show the range", p.FirstSeed, p.FirstSeed+uint64(seeds)-1)
	} else {
		subtitle += fmt.Sprintf("seed %d", p.FirstSeed)
	}
	fmt.Fprintf(b, `<text x="%.0f" y="44" fill="#444">%s</text>`+"\n", chartLeft, html.EscapeString(subtitle))
}

// step returns a distance between ticks that gives at most ten.
func step(length float64) float64 {
	for _, s := range []float64{.01, .02, .05, .1, .2, .5, 1, 2, 5} {
		if length/s <= 10.001 {
			return s
		}
	}
	return 10
}

// ticks returns the multiples of a step in a range.
func ticks(from, to float64) []float64 {
	var all []float64
	distance := step(to - from)
	for i := int(math.Ceil(from/distance - 1e-6)); float64(i)*distance <= to+1e-6; i++ {
		all = append(all, float64(i)*distance)
	}
	return all
}

func axes(b *strings.Builder, s *scale) {
	bottom, right := chartTop+chartHeight, chartLeft+chartWidth
	for _, allocated := range ticks(s.fromY, s.toY) {
		y := s.y(allocated)
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="end">%.0f</text>`+"\n",
			chartLeft, right, y, y, chartLeft-8, y+4, 100*allocated)
	}
	for _, arrived := range ticks(s.fromX, s.toX) {
		x := s.x(arrived)
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#555"/><text x="%.1f" y="%.1f" text-anchor="middle">%.0f</text>`+"\n",
			x, x, bottom, bottom+4, x, bottom+19, 100*arrived)
	}
	fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1fH%.1f" fill="none" stroke="#555"/>`+"\n", chartLeft, chartTop, bottom, right)
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">requested by the pods that have arrived, %% of the capacity</text>`+"\n", chartLeft+chartWidth/2, bottom+40)
	fmt.Fprintf(b, `<text transform="translate(18 %.1f) rotate(-90)" text-anchor="middle">allocated, %% of the capacity</text>`+"\n", chartTop+chartHeight/2)
}

// spread returns the mean and the range of values.
func spread(all []*simulate.Filled, value func(*simulate.Filled) float64) (mean, least, most float64) {
	least, most = math.Inf(1), math.Inf(-1)
	for _, f := range all {
		v := value(f)
		mean += v / float64(len(all))
		least, most = min(least, v), max(most, v)
	}
	return mean, least, most
}

func atEnd(f *simulate.Filled) float64 { return f.Curve[len(f.Curve)-1].Allocated }

func (p *picture) line(b *strings.Builder, s *scale, i int) {
	var upper, lower []string
	var line strings.Builder
	for at := range curvePoints + 1 {
		arrived := s.fromX + (s.toX-s.fromX)*float64(at)/curvePoints
		mean, least, most := spread(p.Arms[i].Filled, func(f *simulate.Filled) float64 { return f.At(arrived) })
		x := s.x(arrived)
		fmt.Fprintf(&line, "%.1f,%.1f ", x, s.y(mean))
		upper = append(upper, fmt.Sprintf("%.1f,%.1f", x, s.y(most)))
		lower = append([]string{fmt.Sprintf("%.1f,%.1f", x, s.y(least))}, lower...)
	}
	color := colors[i%len(colors)]
	if len(p.Arms[i].Filled) > 1 {
		fmt.Fprintf(b, `<polygon fill="%s" fill-opacity="0.2" points="%s %s"/>`+"\n", color, strings.Join(upper, " "), strings.Join(lower, " "))
	}
	fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>`+"\n", color, strings.TrimSpace(line.String()))
}

// legend names the lines, and the values at their ends.
func (p *picture) legend(b *strings.Builder) {
	const lineHeight = 20.0
	longest := 0
	texts := make([]string, len(p.Arms))
	for i, arm := range p.Arms {
		mean, least, most := spread(arm.Filled, atEnd)
		texts[i] = fmt.Sprintf("%s: %.2f %% at the end", arm.Name, 100*mean)
		if len(arm.Filled) > 1 {
			texts[i] += fmt.Sprintf(" (%.2f to %.2f)", 100*least, 100*most)
		}
		longest = max(longest, len([]rune(texts[i])))
	}
	width := min(40+7.2*float64(longest), chartWidth)
	x, y := chartLeft+chartWidth-width-8, chartTop+chartHeight-12-lineHeight*float64(len(texts))
	fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="white" fill-opacity="0.85" stroke="#bbb"/>`+"\n", x, y, width, lineHeight*float64(len(texts))+6)
	for i, text := range texts {
		middle := y + lineHeight*(float64(i)+0.5) + 3
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s" stroke-width="3"/><text x="%.1f" y="%.1f">%s</text>`+"\n",
			x+8, x+28, middle, middle, colors[i%len(colors)], x+34, middle+4, html.EscapeString(text))
	}
}

// typical returns the index of the seed that is nearest to the mean at the end.
func typical(all []*simulate.Filled) int {
	mean, _, _ := spread(all, atEnd)
	best := 0
	for i, f := range all {
		if math.Abs(atEnd(f)-mean) < math.Abs(atEnd(all[best])-mean) {
			best = i
		}
	}
	return best
}

// squares returns the size of the squares of GPUs: the side of one, and how many are in a row.
func squares(gpus int) (side float64, columns int) {
	side = min(max(math.Floor(math.Sqrt(panelArea/float64(max(1, gpus)))), minSquare), maxSquare)
	return side, int(panelWidth / side)
}

// rowHeight returns the height of the panels of two arms beside each other, from the index on.
func rowHeight(arms []simulate.Arm, from int) float64 {
	height := 0.0
	for _, arm := range arms[from:min(from+2, len(arms))] {
		gpus := len(arm.Filled[0].GPUs)
		side, columns := squares(gpus)
		height = max(height, captionHeight+side*math.Ceil(float64(gpus)/float64(columns))+14)
	}
	return height
}

// panelsHeight returns the height of all panels.
func panelsHeight(arms []simulate.Arm) float64 {
	height := 0.0
	for i := 0; i < len(arms); i += 2 {
		height += rowHeight(arms, i)
	}
	return height
}

// panel draws the GPUs of one arm.
func (p *picture) panel(b *strings.Builder, i int, x, y float64) {
	which := typical(p.Arms[i].Filled)
	gpus, pieces, free := p.Arms[i].Filled[which].GPUs, 0, 0.0
	for _, used := range gpus {
		if used < 1 {
			pieces++
			free += 1 - used
		}
	}
	seed := ""
	if len(p.Arms[i].Filled) > 1 {
		seed = fmt.Sprintf(" (seed %d)", p.FirstSeed+uint64(which))
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f"><tspan fill="%s" font-weight="bold">%s</tspan>: %.1f GPUs free, on %d GPUs%s</text>`+"\n",
		x, y+14, colors[i%len(colors)], html.EscapeString(p.Arms[i].Name), free, pieces, seed)
	side, columns := squares(len(gpus))
	var shades [11]strings.Builder // paths of the GPUs by their free share, in tenths; the first is for full ones
	for at, used := range gpus {
		shade := 0
		if used < 1 {
			shade = 1 + int((1-used)*9.999)
		}
		fmt.Fprintf(&shades[shade], "M%.0f %.0fh%.0fv%.0fh-%.0fz", x+side*float64(at%columns), y+captionHeight+side*float64(at/columns), side-1, side-1, side-1)
	}
	for shade := range shades {
		fill := "#333"
		if shade > 0 {
			fill = fmt.Sprintf("hsl(40,95%%,%d%%)", 40+5*shade)
		}
		if shades[shade].Len() > 0 {
			fmt.Fprintf(b, `<path d="%s" fill="%s"/>`, shades[shade].String(), fill)
		}
	}
	b.WriteString("\n")
}
