package strictyaml_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/config/strictyaml"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

// Plain has only types that encoding/json and sigs.k8s.io/yaml also decode.
type Plain struct {
	Inline   `json:",inline"`
	Text     string                `json:"text"`
	Flag     bool                  `json:"flag"`
	Small    int8                  `json:"small"`
	Big      uint64                `json:"big"`
	Ratio    float64               `json:"ratio"`
	Names    []string              `json:"names,omitempty"`
	Labels   map[string]string     `json:"labels,omitempty"`
	Nested   map[string][]Item     `json:"nested,omitempty"`
	Items    []Item                `json:"items,omitempty"`
	Opt      *Item                 `json:"opt,omitempty"`
	Wait     *metav1.Duration      `json:"wait,omitempty"`
	Port     intstr.IntOrString    `json:"port"`
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	Free     any                   `json:"free,omitempty"`
	_        int
}

// Inline is embedded in Plain.
type Inline struct {
	Zone string `json:"zone"`
}

// Item is an element of lists and maps.
type Item struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// Sample has all types that Decode supports.
type Sample struct {
	Plain   `json:",inline"`
	Grace   time.Duration     `json:"grace"`
	Mode    Mode              `json:"mode"`
	Defined []Defined         `json:"defined"`
	Later   strictyaml.Value  `json:"later"`
	Odd     *Odd              `json:"odd"`
	Ratio32 float32           `json:"ratio32"`
	Ptrs    map[string]*int64 `json:"ptrs"`
	Ignored string            `json:"-"`
}

// Odd has unsupported types.
type Odd struct {
	Chan chan int       `json:"chan"`
	ByID map[int]string `json:"byID"`
	Raw  []byte         `json:"raw"`
	Err  error          `json:"err"`
}

// Mode is a word.
type Mode struct {
	Off bool
}

func (m *Mode) UnmarshalText(text []byte) error {
	if string(text) != "off" {
		return errors.New("must be off")
	}
	*m = Mode{Off: true}
	return nil
}

func (m Mode) MarshalText() ([]byte, error) {
	if !m.Off {
		return nil, errors.New("not off")
	}
	return []byte("off"), nil
}

// Defined has defaults.
type Defined struct {
	Weight int    `json:"weight,omitempty"`
	Inner  *Inner `json:"inner"`
}

// Inner has defaults of its own.
type Inner struct {
	On bool `json:"enabled,omitempty"`
}

func (d *Defined) SetDefaults() { d.Weight = 1 }
func (i *Inner) SetDefaults()   { i.On = true }

// TestDecode runs testdata/*.txtar: each case is a document, NAME.yaml, followed by NAME.out, which
// is either the decoded Sample as Marshal writes it or the errors.
func TestDecode(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var updated []txtar.File
		want := map[string]string{}
		for _, f := range archive.Files {
			want[f.Name] = string(f.Data)
		}
		for _, f := range archive.Files {
			base, isInput := strings.CutSuffix(f.Name, ".yaml")
			if !isInput {
				continue
			}
			got := outcome(f.Name, f.Data)
			updated = append(updated, f, txtar.File{Name: base + ".out", Data: []byte(got)})
			if w, ok := want[base+".out"]; !*update && (!ok || got != w) {
				t.Errorf("%s: %s\n%s\ngot:\n%s\nwant:\n%s", name, f.Name, f.Data, got, w)
			}
		}
		if *update {
			archive.Files = updated
			if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func outcome(file string, data []byte) string {
	doc, err := strictyaml.Parse(file, data)
	if err != nil {
		return err.Error() + "\n"
	}
	var into Sample
	if err := doc.Decode(&into); err != nil {
		return err.Error() + "\n"
	}
	out, err := strictyaml.Marshal(withoutZeroes(into))
	if err != nil {
		return err.Error() + "\n"
	}
	return string(out)
}

// withoutZeroes keeps expectations short: they contain only what a case sets.
func withoutZeroes(s Sample) map[string]any {
	short := map[string]any{}
	set := func(name string, isSet bool, v any) {
		if isSet {
			short[name] = v
		}
	}
	set("zone", s.Zone != "", s.Zone)
	set("text", s.Text != "", s.Text)
	set("flag", s.Flag, s.Flag)
	set("small", s.Small != 0, s.Small)
	set("big", s.Big != 0, s.Big)
	set("ratio", s.Ratio != 0, s.Ratio)
	set("ratio32", s.Ratio32 != 0, s.Ratio32)
	set("names", s.Names != nil, s.Names)
	set("labels", s.Labels != nil, s.Labels)
	set("nested", s.Nested != nil, s.Nested)
	set("items", s.Items != nil, s.Items)
	set("opt", s.Opt != nil, s.Opt)
	set("wait", s.Wait != nil, s.Wait)
	set("grace", s.Grace != 0, s.Grace)
	set("port", s.Port != intstr.IntOrString{}, s.Port)
	set("selector", s.Selector != nil, s.Selector)
	set("free", s.Free != nil, s.Free)
	set("mode", s.Mode != Mode{}, s.Mode)
	set("defined", s.Defined != nil, s.Defined)
	set("later", !s.Later.IsZero(), s.Later)
	set("ptrs", s.Ptrs != nil, s.Ptrs)
	return short
}

// Parse and Decode read what Marshal writes, without changes.
func TestMarshalRoundTrip(t *testing.T) {
	item := rapid.Custom(func(t *rapid.T) Item {
		return Item{Name: rapid.String().Draw(t, "name"), Count: rapid.Int().Draw(t, "count")}
	})
	rapid.Check(t, func(t *rapid.T) {
		in := Sample{
			Plain: Plain{
				Inline: Inline{Zone: rapid.StringMatching(`[ -~]{0,6}`).Draw(t, "zone")},
				Text:   rapid.String().Draw(t, "text"),
				Flag:   rapid.Bool().Draw(t, "flag"),
				Small:  rapid.Int8().Draw(t, "small"),
				Big:    rapid.Uint64().Draw(t, "big"),
				Ratio:  rapid.Float64().Draw(t, "ratio"),
				Names:  rapid.SliceOf(rapid.StringMatching(`[-+.:#0-9eExyYnNoOf~&*!|>'"%@ ,?\[\]{}<\n\t]{0,4}`)).Draw(t, "names"),
				Labels: rapid.MapOf(rapid.StringN(0, 20, 100), rapid.String()).Draw(t, "labels"),
				Items:  rapid.SliceOf(item).Draw(t, "items"),
				Opt:    rapid.Ptr(item, true).Draw(t, "opt"),
				Wait:   &metav1.Duration{Duration: time.Duration(rapid.Int64().Draw(t, "wait"))},
			},
			Grace:   time.Duration(rapid.Int64().Draw(t, "grace")),
			Mode:    rapid.SampledFrom([]Mode{{Off: true}}).Draw(t, "mode"),
			Defined: []Defined{{}, {Weight: 2, Inner: &Inner{}}},
		}
		text, err := strictyaml.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := strictyaml.Parse("f", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		var out Sample
		if err := doc.Decode(&out); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		again, err := strictyaml.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != string(again) {
			t.Fatalf("was:\n%s\nis:\n%s", text, again)
		}
		if out.Text != in.Text || out.Grace != in.Grace || out.Mode != in.Mode || out.Ratio != in.Ratio || out.Zone != in.Zone {
			t.Fatalf("was %+v, is %+v", in, out)
		}
	})
}

func TestDefaultsSurvive(t *testing.T) {
	doc, err := strictyaml.Parse("f", []byte("names: [b]\nopt: {count: 7}\ntext: null\n"))
	if err != nil {
		t.Fatal(err)
	}
	into := Plain{Text: "kept", Names: []string{"a", "x"}, Labels: map[string]string{"k": "v"}, Opt: &Item{Name: "kept"}}
	if err := doc.Decode(&into); err != nil {
		t.Fatal(err)
	}
	if into.Text != "kept" || strings.Join(into.Names, " ") != "b" || into.Labels["k"] != "v" || *into.Opt != (Item{"kept", 7}) {
		t.Errorf("got %+v", into)
	}
}

func TestDecodeNeedsPointer(t *testing.T) {
	doc, err := strictyaml.Parse("f", []byte("a: 1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, into := range []any{nil, Plain{}, (*Plain)(nil)} {
		if doc.Decode(into) == nil {
			t.Errorf("decoding into %T succeeded", into)
		}
	}
}

// Marshal quotes words that YAML reads as another type.
func TestMarshalQuotesWhatIsNoText(t *testing.T) {
	for _, word := range []string{"<<", "yes", "null", "1", "1e3", "~", ""} {
		text, err := strictyaml.Marshal(Plain{Labels: map[string]string{"a": word}})
		if err != nil {
			t.Fatal(err)
		}
		doc, err := strictyaml.Parse("f", text)
		if err != nil {
			t.Fatal(err)
		}
		var into Plain
		if err := doc.Decode(&into); err != nil || into.Labels["a"] != word {
			t.Errorf("%q is read as %q (%v)", word, into.Labels["a"], err)
		}
	}
}
