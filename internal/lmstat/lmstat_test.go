package lmstat_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/lmstat"
	"outboard.dev/outboard/signal"
)

// TestSamples parses the texts in testdata, which name the sources of their formats.
func TestSamples(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 5 {
		t.Fatalf("found %q (%v)", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parts := map[string]string{}
			for _, f := range archive.Files {
				parts[f.Name] = string(f.Data)
			}
			for name, text := range map[string]string{
				"as it is":        parts["lmstat.txt"],
				"as from Windows": strings.ReplaceAll(parts["lmstat.txt"], "\n", "\r\n"),
				"indented":        " " + strings.ReplaceAll(parts["lmstat.txt"], "\n", "\n "),
			} {
				got := tell(lmstat.Parse(strings.NewReader(text), strings.Fields(parts["ignore"])))
				if diff := cmp.Diff(parts["want"], got); diff != "" {
					t.Errorf("%s: %s", name, diff)
				}
			}
		})
	}
}

func tell(samples []signal.Sample, err error) string {
	if err != nil {
		return fmt.Sprintf("error: %v\n", err)
	}
	var text strings.Builder
	for _, s := range samples {
		fmt.Fprintf(&text, "%s %v\n", s.Key, s.Number)
	}
	return text.String()
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "it has no feature",
		"# HELP flexlm_up":                "it has no feature",
		"Users of \x00\x1b[2J: (Total of": "no feature is named",
		"Users of a b: (Total of 1 licenses issued; Total of 0 licenses in use)": "no feature is named",
		"Users of":                     "it has no feature",
		"Users of ":                    "it has no feature",
		"Users of solver":              "no feature is named",
		"Users of solver:":             "does not contain the seats of \"solver\"",
		"Users of solver: (Gesamt: 5)": "does not contain the seats of \"solver\"",
		"Users of s: (Total of -1 licenses issued; Total of 0 licenses in use)":                                   "no number of seats",
		"Users of s: (Total of 1e3 licenses issued; Total of 0 licenses in use)":                                  "no number of seats",
		"Users of s: (Total of 99999999999999999999 licenses issued; Total of 0 licenses in use)":                 "no number of seats",
		"Users of s: (Total of 1 licenses issued)":                                                                "no number of seats",
		"Users of s: (Total of 1 licenses issued; Total of NaN licenses in use)":                                  "no number of seats",
		"Users of s: " + strings.Repeat("x", 1e6):                                                                 "does not contain the seats of \"s\"",
		"host1: Cannot connect to license server system. (-15,570)\nmlm: \x1b[31mdown" + strings.Repeat("x", 1e6): "it says: host1: Cannot connect",
	} {
		samples, err := lmstat.Parse(strings.NewReader(text), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q gives %v and %v, want an error with %q", text, samples, err, want)
		} else if len(err.Error()) > 500 || strings.ContainsAny(err.Error(), "\x00\x1b\n") {
			t.Errorf("%.60q gives an error that is too long or not printable: %q", text, err)
		}
	}
	if _, err := lmstat.Parse(strings.NewReader(""), []string{"["}); err == nil || !strings.Contains(err.Error(), `"[" is not a pattern`) {
		t.Errorf("a bad pattern gives %v", err)
	}
}

// TestHostileSizes: the parser does not keep what it has read, and does not buffer a line without
// an end.
func TestHostileSizes(t *testing.T) {
	const size = 100 << 20
	line := &endless{text: []byte("Users of solver:  (Total of 9 licenses issued;  Total of 3 licenses in use)\n ci pod-1 "), fill: 'x', left: size}
	samples, err := lmstat.Parse(io.MultiReader(line, strings.NewReader(" (v1) (lic/1 2), start Mon 3/16 8:16\n")), []string{"pod-*"})
	if got := tell(samples, err); got != "solver/total 9\nsolver/used 3\n" {
		t.Errorf("a line of %d bytes gives %s", size, got)
	}
	many := &features{left: 1 << 20}
	if _, err := lmstat.Parse(many, nil); !errors.Is(err, signal.ErrTooMany) {
		t.Errorf("a million features give %v", err)
	}
	if many.left == 0 {
		t.Error("the parser read all of a million features")
	}
	broken := errors.New("broken")
	if _, err := lmstat.Parse(io.MultiReader(strings.NewReader("Users of a:"), &failing{broken}), nil); !errors.Is(err, broken) {
		t.Errorf("a reader that fails gives %v", err)
	}
}

// endless is text, followed by endless copies of fill.
type endless struct {
	text []byte
	fill byte
	left int
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.text) > 0 {
		n := copy(p, e.text)
		e.text = e.text[n:]
		return n, nil
	}
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), e.left)
	for i := range n {
		p[i] = e.fill
	}
	e.left -= n
	return n, nil
}

// features are lines with one feature each.
type features struct{ left int }

func (f *features) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	f.left--
	return copy(p, fmt.Sprintf("Users of f%d: (Total of 1 license issued;  Total of 0 licenses in use)\n", f.left)), nil
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// TestModel: for any users, the parser subtracts exactly those on ignored hosts.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		want := map[string]float64{}
		for server := range rapid.IntRange(1, 3).Draw(t, "servers") {
			fmt.Fprintf(&text, "License server status: 27000@lic%d\n", server)
			for feature := range rapid.IntRange(1, 4).Draw(t, "features") {
				name := fmt.Sprintf("feature-%d", feature)
				var users strings.Builder
				reserved := rapid.IntRange(0, 5).Draw(t, "reserved")
				if reserved > 0 {
					fmt.Fprintf(&users, "\t%d RESERVATIONs for GROUP g (lic/27000)\n", reserved)
				}
				used, kept := reserved, reserved
				for range rapid.IntRange(0, 6).Draw(t, "users") {
					seats := rapid.IntRange(1, 40).Draw(t, "seats")
					host := rapid.SampledFrom([]string{"ws-1", "POD-1", "pod-2", "xpod-3"}).Draw(t, "host")
					display := rapid.SampledFrom([]string{"", " /dev/pts/0", " |)8<f Z)=Y[<, 7 licenses", " host:0.0 x"}).Draw(t, "display")
					fmt.Fprintf(&users, "    me %s%s (v1.0) (lic/27000 101), start Fri 9/25 11:44", host, display)
					if seats > 1 {
						fmt.Fprintf(&users, ", %d licenses", seats)
					}
					users.WriteString(rapid.SampledFrom([]string{"", ", PID: 310056 ", "  (linger: 885098 / 1340160)"}).Draw(t, "rest") + "\n")
					if used += seats; !strings.HasPrefix(strings.ToLower(host), "pod-") {
						kept += seats
					}
				}
				total := used + rapid.IntRange(0, 9).Draw(t, "free")
				fmt.Fprintf(&text, "Users of %s:  (Total of %d licenses issued;  Total of %d licenses in use)\n%s", name, total, used, users.String())
				want[name+"/total"] += float64(total)
				want[name+"/used"] += float64(kept)
			}
		}
		samples, err := lmstat.Parse(strings.NewReader(text.String()), []string{"pod-*"})
		if err != nil {
			t.Fatalf("%v\n%s", err, text.String())
		}
		got := map[string]float64{}
		for _, s := range samples {
			got[s.Key] = s.Number
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s\n%s", text.String(), diff)
		}
	})
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range archive.Files {
			f.Add(string(part.Data), "pod-*")
		}
	}
	f.Fuzz(func(t *testing.T, text, pattern string) {
		all, err := lmstat.Parse(strings.NewReader(text), nil)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("the error is %d bytes long", len(err.Error()))
			}
			return
		}
		some, err := lmstat.Parse(strings.NewReader(text), []string{pattern})
		if err != nil && !strings.Contains(err.Error(), "is not a pattern") {
			t.Fatalf("only with a pattern: %v", err)
		}
		for i, s := range all {
			if s.Number < 0 || s.Number != math.Trunc(s.Number) {
				t.Errorf("%s is %v", s.Key, s.Number)
			}
			if total := strings.HasSuffix(s.Key, "/total"); total != (i%2 == 0) || !total && !strings.HasSuffix(s.Key, "/used") {
				t.Errorf("the key %q is at %d", s.Key, i)
			}
			if err == nil && (some[i].Key != s.Key || some[i].Number > s.Number || some[i].Number < 0) {
				t.Errorf("%v is %v if hosts are ignored", s, some[i])
			}
		}
	})
}
