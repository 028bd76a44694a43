package measure

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"outboard.dev/outboard/internal/histogram"
)

// Each arm is at each place of a turn once.
func TestTurn(t *testing.T) {
	arms := []string{"a", "b", "c"}
	var turns []string
	for turn := range 4 {
		turns = append(turns, strings.Join(Turn(arms, turn), ""))
	}
	if got := strings.Join(turns, " "); got != "abc bca cab abc" {
		t.Errorf("the turns are %s", got)
	}
}

func TestMatching(t *testing.T) {
	arms := []string{"BestFit", "FGD, mix known", "LeastWaste, mix known"}
	itself := func(name string) string { return name }
	for text, want := range map[string]int{"": 3, "mix known": 2, "BestFit": 1} {
		if got, err := Matching(arms, text, itself); err != nil || len(got) != want {
			t.Errorf("%q: %q (%v), want %d arms", text, got, err, want)
		}
	}
	if got, err := Matching(arms, "fast", itself); err == nil || !strings.Contains(err.Error(), "BestFit") {
		t.Errorf("an unknown name: %q (%v)", got, err)
	}
}

func TestFigures(t *testing.T) {
	for _, tt := range []struct {
		figures        Figures
		median, spread string
		mean, dev      float64
	}{
		{nil, "–", "–", 0, 0},
		{Figures{7}, "7", "7 [7–7]", 7, 0},
		{Figures{9, 1, 2}, "2", "2 [1–9]", 4, math.Sqrt(19)},
		{Figures{40, 10, 30, 20}, "25", "25 [10–40]", 25, math.Sqrt(500.0 / 3)},
	} {
		before := slices.Clone(tt.figures)
		if got := tt.figures.Median("%.0f"); got != tt.median {
			t.Errorf("%v: the median is %s, want %s", before, got, tt.median)
		}
		if got := tt.figures.Spread("%.0f"); got != tt.spread {
			t.Errorf("%v: the spread is %s, want %s", before, got, tt.spread)
		}
		if mean, dev := tt.figures.Mean(); math.Abs(mean-tt.mean) > 1e-9 || math.Abs(dev-tt.dev) > 1e-9 {
			t.Errorf("%v: mean %f and deviation %f, want %f and %f", before, mean, dev, tt.mean, tt.dev)
		}
		if !slices.Equal(tt.figures, before) {
			t.Errorf("%v became %v", before, tt.figures)
		}
	}
	sorted := []time.Duration{1, 2, 3, 4, 5}
	if a, b, c := Quantile(sorted, 0), Quantile(sorted, 0.5), Quantile(sorted, 1); a != 1 || b != 3 || c != 5 {
		t.Errorf("the quantiles are %d, %d and %d", a, b, c)
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	table := NewTable(&out, "arm", "pods/s", "what")
	table.Row("stock", 7, "alone")
	table.Row("outboard-8", 1.5, "")
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "arm         pods/s  what\nstock       7       alone\noutboard-8  1.5     \n"; out.String() != want {
		t.Errorf("the table is\n%swant\n%s", &out, want)
	}
}

func TestScrape(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `# TYPE attempts_total counter
attempts_total{profile="a",result="scheduled"} 3
attempts_total{profile="b",result="scheduled"} 4
attempts_total{profile="a",result="error"} 1
# TYPE pending gauge
pending{queue="active"} 12
# TYPE took_seconds histogram
took_seconds_bucket{result="scheduled",le="1"} 1
took_seconds_bucket{result="scheduled",le="+Inf"} 2
took_seconds_sum{result="scheduled"} 5
took_seconds_count{result="scheduled"} 2
took_seconds_bucket{result="error",le="1"} 1
took_seconds_bucket{result="error",le="+Inf"} 1
took_seconds_sum{result="error"} 0.5
took_seconds_count{result="error"} 1
`)
	}))
	defer server.Close()
	m, err := Scrape(t.Context(), server.Client(), server.URL+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, label, value string
		want               float64
	}{
		{"attempts_total", "result", "scheduled", 7}, {"attempts_total", "result", "error", 1}, {"attempts_total", "", "", 8},
		{"attempts_total", "result", "none", 0}, {"pending", "queue", "active", 12}, {"absent", "", "", 0},
	} {
		if got := m.Sum(tt.name, tt.label, tt.value); got != tt.want {
			t.Errorf("%s with %s=%q: %v, want %v", tt.name, tt.label, tt.value, got, tt.want)
		}
	}
	one, all := m.Histogram("took_seconds", "result", "scheduled"), m.Histogram("took_seconds", "", "")
	if one.Mean() != 2.5 || all.count != 3 || all.buckets[0].Count != 2 {
		t.Errorf("the histograms are %+v and %+v", one, all)
	}
	if _, err := Scrape(t.Context(), server.Client(), server.URL+"/other"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("the error is %v, want the status", err)
	}
}

// Figures from before the first reading do not count.
func TestHistogram(t *testing.T) {
	before := Histogram{count: 10, sum: 100, buckets: histogram.Histogram{{Seconds: 1, Count: 0}, {Seconds: 2, Count: 10}}}
	now := Histogram{count: 20, sum: 112, buckets: histogram.Histogram{{Seconds: 1, Count: 5}, {Seconds: 2, Count: 20}}}
	if h := now.Since(&before); h.Count() != 10 || h.Mean() != 1.2 || h.Quantile(0.5) != 1 {
		t.Errorf("there are %f since then, the mean is %f, and the median %f", h.Count(), h.Mean(), h.Quantile(0.5))
	}
	if same := now.Since(&now); same.Mean() != 0 || same.Quantile(0.5) != 0 {
		t.Errorf("without observations, the mean is %f and the median %f", same.Mean(), same.Quantile(0.5))
	}
}

// TestMain lets this program be the server of TestServer.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		err := Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "served") }))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestServer(t *testing.T) {
	s, err := StartServer(t.Context(), os.Args[0], "serve")
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(s.URL)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v (%v)", resp, err)
	}
	resp.Body.Close()
	if used, err := ProcessorTime(s.PID()); err != nil || used <= 0 {
		t.Errorf("the server has used %v (%v)", used, err)
	}
	if err := s.Stop(); err != nil {
		t.Errorf("the server does not end with its input: %v", err)
	}
	if _, err := StartServer(t.Context(), os.Args[0], "-test.list", "^$"); err == nil || !strings.Contains(err.Error(), "does not print where it serves") {
		t.Errorf("a program that serves nothing: %v", err)
	}
	if _, err := StartServer(t.Context(), "/does/not/exist"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
}

func TestProcessorTime(t *testing.T) {
	before, err := ProcessorTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for sum, now := 0, before; now < before+time.Millisecond; sum++ { // ends only if the time grows
		if now, err = ProcessorTime(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ProcessorTime(1 << 22); err == nil { // the kernel's PIDs are smaller
		t.Error("a process that does not exist has a processor time")
	}
}
