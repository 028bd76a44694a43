package strictyaml_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config/strictyaml"
)

// The parser drops the tag "!" silently; sigs.k8s.io/yaml reads it as "string".
var nonSpecificTag = regexp.MustCompile(`!(?:\s|[,\]}]|$)`)

// FuzzDecode: no text makes Parse or Decode panic, every error is on one line, and valid text has
// the same result with sigs.k8s.io/yaml and encoding/json, and with Parse after Marshal.
func FuzzDecode(f *testing.F) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			f.Add(file.Data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := strictyaml.Parse("f", data)
		if err != nil {
			checkErrors(t, err)
			return
		}
		var sample Sample
		if err := doc.Decode(&sample); err != nil {
			checkErrors(t, err)
		}
		var ours, theirs, again Plain
		if doc.Decode(&ours) != nil || nonSpecificTag.Match(data) {
			return
		}
		asJSON, err := yaml.YAMLToJSON(data)
		if err != nil {
			t.Fatalf("Decode accepts the text, and sigs.k8s.io/yaml does not: %v", err)
		}
		if err := json.Unmarshal(asJSON, &theirs); err != nil {
			t.Fatalf("Decode accepts the text, and encoding/json does not: %v\n%s", err, asJSON)
		}
		text := marshal(t, ours)
		if other := marshal(t, theirs); text != other {
			t.Fatalf("ours:\n%s\ntheirs:\n%s", text, other)
		}
		doc, err = strictyaml.Parse("f", []byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if err := doc.Decode(&again); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if other := marshal(t, again); text != other {
			t.Fatalf("was:\n%s\nis:\n%s", text, other)
		}
	})
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	text, err := strictyaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func checkErrors(t *testing.T, err error) {
	t.Helper()
	errs, ok := err.(strictyaml.Errors)
	if !ok || len(errs) == 0 {
		t.Fatalf("not Errors: %T %v", err, err)
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != len(errs) {
		t.Fatalf("%d errors in %d lines:\n%v", len(errs), lines, err)
	}
	if len(errs) > 101 {
		t.Fatalf("%d errors", len(errs))
	}
	for i, e := range errs {
		if e.File != "f" || e.Rule == "" || e.Line < 0 {
			t.Fatalf("incomplete: %+v", e)
		}
		if i > 0 && e.Line > 0 && e.Line < errs[i-1].Line {
			t.Fatalf("not ordered by line:\n%v", err)
		}
	}
}

// Hostile documents cost little: Parse rejects them, or reads them in time proportional to their
// length. Without limits, each of them takes minutes or gigabytes.
func TestHostileDocuments(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat("*"+string(c-1)+", ", 9), ", ") + "]\n"
	}
	for _, tt := range []struct{ name, text, want string }{
		{"aliases of lists", bomb, "must not have more than"},
		{"aliases of text", "text: &t " + strings.Repeat("x", 200_000) + "\nfree: [" + strings.Repeat("*t,", 20_000) + "]\n", "bytes of text"},
		{"long", strings.Repeat("#", strictyaml.MaxBytes+1), "must not be longer than"},
		{"deep flow", strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000), "must not nest deeper"},
		{"deep block", strings.Repeat("- ", 9_000) + "a", "must not nest deeper"},
		{"deep mapping", strings.Repeat("{a: ", 9_000) + strings.Repeat("}", 9_000), "must not nest deeper"},
		{"directives", strings.Repeat("%TAG !a! tag:x\n", 60_000), "begins with %"},
		{"many errors", "items: [" + strings.Repeat("1,", 1_000) + "]", "too many errors"},
		{"many duplicates", strings.Repeat("text: a\n", 1_000), "too many errors"},
		{"long key", "? " + strings.Repeat("k", 5_000) + "\n: 1", "must not be longer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := outcome("f", []byte(tt.text))
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %.300s, want it to contain %q", got, tt.want)
			}
			if len(got) > 100_000 {
				t.Errorf("%d bytes of errors", len(got))
			}
		})
	}
}
