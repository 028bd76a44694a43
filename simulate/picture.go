package simulate

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

const (
	chartWidth, chartHeight = 760.0, 300.0
	chartLeft, chartTop     = 56.0, 34.0
	panelWidth              = 372.0
	square                  = 4.0 // a GPU
	captionHeight           = 40.0
)

// colors tell arms apart, also to people who do not see all colors.
var colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// WritePicture draws, as SVG, how the clusters filled up, one line for each arm, and
// below each cluster at its end, one square for each GPU: black when it is full, and the
// brighter the more of it is free. Of each arm it shows the first seed.
func WritePicture(w io.Writer, arms []Arm, until float64) error {
	var b strings.Builder
	low := 1.0
	for _, arm := range arms {
		low = min(low, arm.Filled[0].At(until*0.6))
	}
	low = math.Floor(low*20) / 20
	from := low // of what arrives: up to there all fits
	for _, arm := range arms {
		if arm.Filled[0].Curve[0].Allocated > 0 {
			from = 0
		}
	}
	x := func(arrived float64) float64 { return chartLeft + chartWidth*(arrived-from)/(until-from) }
	columns := int((panelWidth - 20) / square)
	panelHeight := 0.0
	for _, arm := range arms {
		panelHeight = max(panelHeight, captionHeight+square*math.Ceil(float64(len(arm.Filled[0].GPUs))/float64(columns)))
	}
	width := chartLeft + chartWidth + 40
	height := chartTop + chartHeight + 50 + panelHeight*math.Ceil(float64(len(arms))/2) + 10
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="13">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" fill="white"/>`+"\n", width, height)
	axes(&b, low, from, until, x)
	for i, arm := range arms {
		line(&b, arm, low, until, x, colors[i%len(colors)], i)
	}
	for i, arm := range arms {
		x := chartLeft - 36 + float64(i%2)*(panelWidth+30)
		y := chartTop + chartHeight + 50 + float64(i/2)*panelHeight
		panel(&b, arm, x, y, columns, colors[i%len(colors)])
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func chartY(allocated, low float64) float64 {
	return chartTop + chartHeight*(1-math.Max(0, allocated-low)/(1-low))
}

func axes(b *strings.Builder, low, from, until float64, x func(float64) float64) {
	fmt.Fprintf(b, `<text x="%.0f" y="20" font-weight="bold">Allocated, by what has arrived (%% of capacity)</text>`+"\n", chartLeft)
	for y := low; y <= 1.0001; y += 0.05 {
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="end">%.0f</text>`+"\n",
			chartLeft, chartLeft+chartWidth, chartY(y, low), chartY(y, low), chartLeft-6, chartY(y, low)+4, 100*y)
	}
	step := 0.1
	if from > 0 {
		step = 0.05
	}
	for arrived := from; arrived <= until+0.0001; arrived += step {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%.0f</text>`+"\n", x(arrived), chartTop+chartHeight+18, 100*arrived)
	}
}

func line(b *strings.Builder, arm Arm, low, until float64, x func(float64) float64, color string, row int) {
	fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2" points="`, color)
	for _, p := range arm.Filled[0].Curve {
		if p.Allocated >= low && p.Arrived <= until*1.001 {
			fmt.Fprintf(b, "%.1f,%.1f ", x(min(p.Arrived, until)), chartY(p.Allocated, low))
		}
	}
	b.WriteString(`"/>` + "\n")
	y := chartTop + chartHeight - 12 - 18*float64(row)
	last := arm.Filled[0].Curve[len(arm.Filled[0].Curve)-1]
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="end" fill="%s" font-weight="bold">%s %.2f %%</text>`+"\n",
		chartLeft+chartWidth-8, y, color, html.EscapeString(arm.Name), 100*last.Allocated)
}

// panel draws the GPUs of one arm.
func panel(b *strings.Builder, arm Arm, x, y float64, columns int, color string) {
	gpus, pieces, free := arm.Filled[0].GPUs, 0, 0.0
	for _, used := range gpus {
		if used < 1 {
			pieces++
			free += 1 - used
		}
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f"><tspan fill="%s" font-weight="bold">%s</tspan>: %.1f GPUs free, in %d pieces</text>`+"\n",
		x, y+14, color, html.EscapeString(arm.Name), free, pieces)
	for row := 0; row*columns < len(gpus); row++ { // as if all were full
		n := min(columns, len(gpus)-row*columns)
		fmt.Fprintf(b, `<rect x="%.0f" y="%.0f" width="%.0f" height="3" fill="#333"/>`, x, y+24+square*float64(row), square*float64(n))
	}
	var shades [10]strings.Builder // what is free, as paths by how much of a GPU it is
	for i, used := range gpus {
		if used < 1 {
			shade := &shades[int((1-used)*9.999)]
			fmt.Fprintf(shade, "M%.0f %.0fh4v3h-4z", x+square*float64(i%columns), y+24+square*float64(i/columns))
		}
	}
	for i := range shades {
		if shades[i].Len() > 0 {
			fmt.Fprintf(b, `<path d="%s" fill="hsl(40,95%%,%d%%)"/>`, shades[i].String(), 45+5*i)
		}
	}
	b.WriteString("\n")
}
