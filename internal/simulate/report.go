package simulate

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Marks are the arrived amounts, relative to the capacity, for which a report has the allocation.
var Marks = []float64{.80, .90, .95, 1, 1.10, 1.20, 1.30}

// Arm is one set of policies, with the result of each seed.
type Arm struct {
	Name   string
	Filled []*Filled
}

// Report is how each arm fills the cluster up.
type Report struct {
	// Notes describe the simulation.
	Notes     []string
	FirstSeed uint64
	Arms      []Arm
}

// figure is a column of a report.
type figure struct {
	title, key string
	digits     int
	value      func(*Filled) float64 // NaN: no value
}

func figures() []figure {
	var figures []figure
	for _, mark := range Marks {
		percent := fmt.Sprintf("%.0f", 100*mark)
		figures = append(figures, figure{percent, "allocatedPercentAt" + percent, 2, func(f *Filled) float64 { return 100 * f.At(mark) }})
	}
	return append(
		figures,
		figure{"first rejected at %", "firstRejectedAtPercent", 2, func(f *Filled) float64 {
			if f.FirstRejected == 0 {
				return math.NaN()
			}
			return 100 * f.FirstRejected
		}},
		figure{"rejected pods", "rejectedPods", 0, func(f *Filled) float64 { return float64(f.Rejected) }},
	)
}

// WriteText writes the notes, and a table with the mean of each figure over the seeds and its
// standard deviation.
func (r *Report) WriteText(w io.Writer) error {
	for _, note := range r.Notes {
		if _, err := fmt.Fprintln(w, note); err != nil {
			return err
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	cells := []string{"allocated % at arrived %"}
	for _, f := range figures() {
		cells = append(cells, f.title)
	}
	fmt.Fprintln(table, strings.Join(cells, "\t"))
	for _, arm := range r.Arms {
		cells = []string{arm.Name}
		for _, f := range figures() {
			cells = append(cells, f.over(arm.Filled))
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	return table.Flush()
}

// over returns the mean as text, and the standard deviation if there are several values.
func (f *figure) over(seeds []*Filled) string {
	var values []float64
	sum, squares := 0.0, 0.0
	for _, filled := range seeds {
		if v := f.value(filled); !math.IsNaN(v) {
			values, sum = append(values, v), sum+v
		}
	}
	if len(values) == 0 {
		return "none"
	}
	mean := sum / float64(len(values))
	text := fmt.Sprintf("%.*f", f.digits, mean)
	if len(values) > 1 {
		for _, v := range values {
			squares += (v - mean) * (v - mean)
		}
		text += fmt.Sprintf("±%.*f", f.digits, math.Sqrt(squares/float64(len(values)-1)))
	}
	if len(values) < len(seeds) {
		text += fmt.Sprintf(" (in %d of %d)", len(values), len(seeds))
	}
	return text
}

// WriteJSON writes the notes, and the figures of each seed.
func (r *Report) WriteJSON(w io.Writer) error {
	type seed struct {
		Seed uint64 `json:"seed"`
		// Figures are by key; null means no value.
		Figures map[string]*float64 `json:"figures"`
	}
	type configuration struct {
		Name  string `json:"name"`
		Seeds []seed `json:"seeds"`
	}
	var document struct {
		Notes          []string        `json:"notes,omitempty"`
		Configurations []configuration `json:"configurations"`
	}
	document.Notes = r.Notes
	for _, arm := range r.Arms {
		c := configuration{Name: arm.Name}
		for i, filled := range arm.Filled {
			s := seed{r.FirstSeed + uint64(i), map[string]*float64{}}
			for _, f := range figures() {
				s.Figures[f.key] = nil
				if v := math.Round(f.value(filled)*1e6) / 1e6; !math.IsNaN(v) {
					s.Figures[f.key] = &v
				}
			}
			c.Seeds = append(c.Seeds, s)
		}
		document.Configurations = append(document.Configurations, c)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(document)
}
