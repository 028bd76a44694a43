package simulate

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Arm is one set of policies, simulated with several seeds.
type Arm struct {
	Name     string
	Filled   []*Filled
	Replayed []*Replayed
}

// Marks are the arrived amounts, relative to the capacity, for which a report has the allocation.
var Marks = []float64{.80, .90, .95, 1, 1.10, 1.20, 1.30}

// Format is the format of a Report.
type Format string

const (
	Text     Format = "text"
	CSV      Format = "csv" // one line for each configuration and seed
	JSON     Format = "json"
	Markdown Format = "markdown"
)

// Report is a table with the figures of each arm: text and Markdown have the mean over the seeds
// with the standard deviation, CSV and JSON each value.
type Report struct {
	// Notes describe the simulation; they are part of all formats except CSV.
	Notes []string
	// Title is the header of the column with the names of the arms.
	Title     string
	FirstSeed uint64
	columns   []column
	rows      []row
}

// column is a figure.
type column struct {
	title, key string
	digits     int
	unit       string
	value      func(seed int) float64 // NaN: no value
}

type row struct {
	name    string
	seeds   int
	columns []column // with the values of this row
}

// FilledReport reports how clusters filled up. amount is the capacity for the resource, in unit,
// which is also the unit of the unallocated amount.
func FilledReport(arms []Arm, until, amount float64, unit string) *Report {
	r := &Report{Title: "allocated % at arrived %"}
	for _, arm := range arms {
		of := func(value func(*Filled) float64) func(int) float64 {
			return func(seed int) float64 { return value(arm.Filled[seed]) }
		}
		var columns []column
		for _, mark := range Marks {
			if mark <= until {
				percent := fmt.Sprintf("%.0f", 100*mark)
				columns = append(columns, column{percent, "allocatedPercentAt" + percent, 2, "", of(func(f *Filled) float64 { return 100 * f.At(mark) })})
			}
		}
		r.add(arm.Name, len(arm.Filled), append(
			columns,
			column{"first rejected at %", "firstRejectedAtPercent", 2, "", of(func(f *Filled) float64 {
				if f.FirstRejected == 0 {
					return math.NaN()
				}
				return 100 * f.FirstRejected
			})},
			column{"unallocated " + unit, "unallocated", 1, "", of(func(f *Filled) float64 { return amount * (1 - f.Curve[len(f.Curve)-1].Allocated) })},
			column{"rejected pods", "rejectedPods", 0, "", of(func(f *Filled) float64 { return float64(f.Rejected) })},
		))
	}
	return r
}

// ReplayedReport reports how pods that come and go were served.
func ReplayedReport(arms []Arm) *Report {
	r := &Report{}
	for _, arm := range arms {
		of := func(value func(*Replayed) float64) func(int) float64 {
			return func(seed int) float64 { return value(arm.Replayed[seed]) }
		}
		r.add(arm.Name, len(arm.Replayed), []column{
			{"requested %", "requestedPercent", 2, "", of(func(r *Replayed) float64 { return 100 * r.Requested })},
			{"served %", "servedPercent", 2, "", of(func(r *Replayed) float64 { return 100 * r.Served })},
			{"pods", "pods", 0, "", of(func(r *Replayed) float64 { return float64(r.Pods) })},
			{"delayed %", "delayedPercent", 2, "", of(func(r *Replayed) float64 { return 100 * float64(r.Delayed) / math.Max(1, float64(r.Pods)) })},
			{"mean wait", "meanWaitSeconds", 2, " s", of(func(r *Replayed) float64 { return r.Waited.Seconds() })},
			{"waiting at the end", "waitingAtTheEnd", 1, "", of(func(r *Replayed) float64 { return float64(r.Waiting) })},
		})
	}
	return r
}

func (r *Report) add(name string, seeds int, columns []column) {
	r.columns = columns // of any row: all have the same titles
	r.rows = append(r.rows, row{name, seeds, columns})
}

// Write writes the report.
func (r *Report) Write(w io.Writer, format Format) error {
	switch format {
	case CSV:
		return r.writeCSV(w)
	case JSON:
		return r.writeJSON(w)
	case Markdown:
		return r.writeMarkdown(w)
	}
	return r.writeText(w)
}

// cells returns the title and the figures of a row.
func (r *row) cells() []string {
	cells := []string{r.name}
	for _, c := range r.columns {
		cells = append(cells, c.over(r.seeds))
	}
	return cells
}

func (r *Report) titles() []string {
	titles := []string{r.Title}
	for _, c := range r.columns {
		titles = append(titles, c.title)
	}
	return titles
}

func (r *Report) writeText(w io.Writer) error {
	for _, note := range r.Notes {
		if _, err := fmt.Fprintln(w, note); err != nil {
			return err
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.Join(r.titles(), "\t"))
	for i := range r.rows {
		fmt.Fprintln(table, strings.Join(r.rows[i].cells(), "\t"))
	}
	return table.Flush()
}

func (r *Report) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	if len(r.Notes) > 0 {
		fmt.Fprintf(&b, "%s\n\n", strings.Join(r.Notes, " "))
	}
	line := func(cells []string) {
		for _, cell := range cells {
			fmt.Fprintf(&b, "| %s ", strings.ReplaceAll(cell, "|", `\|`))
		}
		b.WriteString("|\n")
	}
	line(r.titles())
	b.WriteString("|---|" + strings.Repeat("---:|", len(r.columns)) + "\n")
	for i := range r.rows {
		line(r.rows[i].cells())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) writeCSV(w io.Writer) error {
	table := csv.NewWriter(w)
	titles := []string{"configuration", "seed"}
	for _, c := range r.columns {
		titles = append(titles, c.key)
	}
	if err := table.Write(titles); err != nil {
		return err
	}
	for _, row := range r.rows {
		for seed := range row.seeds {
			line := []string{row.name, strconv.FormatUint(r.FirstSeed+uint64(seed), 10)}
			for _, c := range row.columns {
				value := ""
				if v := c.rounded(seed); v != nil {
					value = strconv.FormatFloat(*v, 'f', -1, 64)
				}
				line = append(line, value)
			}
			if err := table.Write(line); err != nil {
				return err
			}
		}
	}
	table.Flush()
	return table.Error()
}

func (r *Report) writeJSON(w io.Writer) error {
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
	for _, row := range r.rows {
		c := configuration{Name: row.name}
		for i := range row.seeds {
			s := seed{r.FirstSeed + uint64(i), map[string]*float64{}}
			for _, column := range row.columns {
				s.Figures[column.key] = column.rounded(i)
			}
			c.Seeds = append(c.Seeds, s)
		}
		document.Configurations = append(document.Configurations, c)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(document)
}

// rounded returns the value with six decimals, or nil if there is none.
func (c *column) rounded(seed int) *float64 {
	v := math.Round(c.value(seed)*1e6) / 1e6
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

// over returns the mean as text, and the standard deviation if there are several values.
func (c *column) over(seeds int) string {
	var values []float64
	sum, squares := 0.0, 0.0
	for seed := range seeds {
		if v := c.value(seed); !math.IsNaN(v) {
			values, sum = append(values, v), sum+v
		}
	}
	if len(values) == 0 {
		return "none"
	}
	mean := sum / float64(len(values))
	text := fmt.Sprintf("%.*f", c.digits, mean)
	if len(values) > 1 {
		for _, v := range values {
			squares += (v - mean) * (v - mean)
		}
		text += fmt.Sprintf("±%.*f", c.digits, math.Sqrt(squares/float64(len(values)-1)))
	}
	if len(values) < seeds {
		text += fmt.Sprintf(" (in %d of %d)", len(values), seeds)
	}
	return text + c.unit
}

// Progress writes the results of simulations, and on a terminal also the progress of each, at most
// once every Every. It rewrites the line of a terminal.
type Progress struct {
	W        io.Writer
	Terminal bool // whether W is one
	// Every is the minimum time between two lines, by Now.
	Every time.Duration
	Now   func() time.Time
	last  time.Time
}

// Of returns a function that reports the progress of the simulation with the name.
func (p *Progress) Of(name string) func(part float64) {
	return func(part float64) {
		if now := p.Now(); p.Terminal && now.Sub(p.last) >= p.Every {
			p.last = now
			fmt.Fprintf(p.W, "\r%s: %3.0f %%   ", name, 100*math.Min(1, part))
		}
	}
}

// Done writes the result of the simulation with the name.
func (p *Progress) Done(name, result string) {
	if !p.Terminal {
		fmt.Fprintf(p.W, "%s: %s\n", name, result)
		return
	}
	fmt.Fprintf(p.W, "\r%s: %s%s\n", name, result, strings.Repeat(" ", 12))
}
