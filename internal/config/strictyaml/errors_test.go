package strictyaml_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/internal/config/strictyaml"
)

func parse(t *testing.T, text string) strictyaml.Value {
	t.Helper()
	doc, err := strictyaml.Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

const located = `# first line
text: a
items:
- name: a
  count: 1
- name: b
labels:
  app.kubernetes.io/name: x
  app: y
  "a[0]": z
opt: &o
  name: c
more: *o
`

// Errors about values get the line of the value or of the nearest enclosing one.
func TestLocate(t *testing.T) {
	top := field.NewPath("top")
	for _, tt := range []struct {
		at   string
		err  error
		want string
	}{
		{"", field.Invalid(field.NewPath("text"), "a", "must be b"), `f:2: text: Invalid value: "a": must be b`},
		{"", field.Required(field.NewPath("items").Index(1).Child("count"), "must be there"), "f:6: items[1].count: Required value: must be there"},
		{"", field.Required(field.NewPath("items").Index(7).Child("count"), ""), "f:3: items[7].count: Required value"},
		{"", field.Forbidden(field.NewPath("items").Child("name"), "not now"), "f:3: items.name: Forbidden: not now"},
		{"", field.Invalid(field.NewPath("labels").Key("app"), 1, ""), "f:9: labels[app]: Invalid value: 1"},
		{"", field.Invalid(field.NewPath("labels").Key("app.kubernetes.io/name"), 1, ""), "f:8: labels[app.kubernetes.io/name]: Invalid value: 1"},
		{"", field.Invalid(field.NewPath("labels", "app.kubernetes.io/name"), 1, ""), "f:8: labels.app.kubernetes.io/name: Invalid value: 1"},
		{"", field.Invalid(field.NewPath("labels").Key("a[0]"), 1, ""), "f:10: labels[a[0]]: Invalid value: 1"},
		{"", field.Invalid(field.NewPath("more", "name"), "c", ""), `f:12: more.name: Invalid value: "c"`},
		{"", field.Invalid(field.NewPath("text", "inner"), "c", ""), `f:2: text.inner: Invalid value: "c"`},
		{"", field.Duplicate(top, []string{"a"}), `f:2: top: Duplicate value: ["a"]`},
		{"", field.Invalid(top, func() {}, ""), "f:2: top: Invalid value: 0x"},
		{"", field.Invalid(top, field.OmitValueType{}, "left out"), "f:2: top: Invalid value: left out"},
		{"", field.TooLong(top, strings.Repeat("x", 999), 5), "f:2: top: Too long: may not be more than 5 bytes"},
		{"", field.Invalid(top, strings.Repeat("x", 999), ""), `f:2: top: Invalid value: "` + strings.Repeat("x", 80) + `…"`},
		{"", field.Invalid(nil, 1, "about all"), "f:2: Invalid value: 1: about all"},
		{"items[1]", field.Invalid(field.NewPath("name"), "b", ""), `f:6: items[1].name: Invalid value: "b"`},
		{"items[1]", field.Invalid(nil, "b", ""), `f:6: items[1]: Invalid value: "b"`},
		{"items[1].config", field.Invalid(field.NewPath("x"), "b", ""), `f:6: items[1].config.x: Invalid value: "b"`},
		{"items", field.Invalid((*field.Path)(nil).Index(0), "b", ""), `f:4: items[0]: Invalid value: "b"`},
		{"opt", errors.New("one\ntwo"), "f:11: opt: one; two"},
		{"opt", fmt.Errorf("why: %w", errors.New("one")), "f:11: opt: why: one"},
		{"opt", fmt.Errorf("why: %w", field.Required(field.NewPath("count"), "")), "f:11: opt.count: Required value"},
		{"opt", field.ErrorList{field.Required(field.NewPath("b"), ""), field.Required(field.NewPath("a"), "")}.ToAggregate(), "f:11: opt.b: Required value\nf:11: opt.a: Required value"},
		{"opt", errors.Join(errors.New("plain"), fmt.Errorf("w: %w", errors.Join(field.Required(top, "")))), "f:11: opt: plain\nf:11: opt.top: Required value"},
		{"opt", strictyaml.Errors{{File: "g", Line: 5, Rule: "kept"}}, "g:5: kept"},
		{"opt", nil, ""},
	} {
		got := parse(t, located).At(tt.at).Locate(tt.err).Error()
		if got != tt.want && !(strings.HasSuffix(tt.want, "0x") && strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s, %v:\ngot  %s\nwant %s", tt.at, tt.err, got, tt.want)
		}
	}
}

func TestJoin(t *testing.T) {
	if err := strictyaml.Join(nil, strictyaml.Errors(nil)); err != nil {
		t.Errorf("no error became %v", err)
	}
	got := strictyaml.Join(
		strictyaml.Errors{{File: "f", Line: 3, Rule: "c"}, {File: "f", Line: 1, Rule: "a"}},
		nil, errors.New("plain"), strictyaml.Errors{{File: "f", Line: 1, Rule: "b"}})
	if want := "plain\nf:1: a\nf:1: b\nf:3: c"; got.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", got, want)
	}
}

func TestDiff(t *testing.T) {
	for _, tt := range []struct{ a, b, want string }{
		{"{a: 1, b: {c: [x, y]}}", "{b: {c: [x, y]}, a: 1}", ""},
		{"{a: 1}", "{a: 2}", "a: 1 → 2"},
		{"{a: 1, b: 2}", "{c: 3, b: 2}", "c: none → 3; a: 1 → none"},
		{"{a: {b: 1}}", "{a: [1]}", `a: {"b":1} → [1]`},
		{"{a: {b: 1, c: 2}}", "{a: {b: 2}}", "a.b: 1 → 2; a.c: 2 → none"},
		{"{a: [1, 2]}", "{a: [1, {b: 2}]}", `a: [1,2] → [1,{"b":2}]`},
		{"{a: [{b: 1}, {b: 2}]}", "{a: [{b: 3}]}", `a[0].b: 1 → 3; a[1]: {"b":2} → none`},
		{"{a: [{name: v, b: 1}, {name: w, b: 1}]}", "{a: [{name: w, b: 2}, {name: x, b: 1}]}", "a[0].b: 1 → 2; a[1]: none → x; a[0]: v → none"},
		{"{a: [{path: v, name: w}]}", "{a: [{path: x, name: w}]}", "a[0]: none → x; a[0]: v → none"},
		{"{a: [v]}", "{a: []}", `a: ["v"] → []`},
		{`{a: ""}`, `{a: "b\nc"}`, `a: "" → "b\nc"`},
		{"{a: " + strings.Repeat("x", 1000) + "}", "{}", "a: " + strings.Repeat("x", 160) + "… → none"},
		{"{a: [" + strings.Repeat("1, ", 100) + "1]}", "{a: [" + strings.Repeat("1, ", 100) + "2, 2]}", "a: …" + strings.Repeat("1,", 20) + "1] → …" + strings.Repeat("1,", 20) + "2,2]"},
		{"{a: &x [1], b: *x}", "{a: [1], b: [1]}", ""},
	} {
		var lines []string
		for _, change := range strictyaml.Diff("", parse(t, tt.a), parse(t, tt.b)) {
			lines = append(lines, change.String())
		}
		if got := strings.Join(lines, "; "); got != tt.want {
			t.Errorf("%s and %s: got %q, want %q", tt.a, tt.b, got, tt.want)
		}
	}
}

type base struct {
	Name   string `json:"name"`
	Hidden string `json:"hidden"`
}

type pointed struct {
	Depth int `json:"depth"`
}

// Embedded fields are inline. Outer fields hide them. Decode reaches them through pointers that it
// can set.
func TestEmbedded(t *testing.T) {
	type Exported struct{ Untagged int }
	type embedding struct {
		base
		*Exported
		Hidden int `json:"hidden"`
		Tagged struct {
			A int `json:"a"`
		} `json:"tagged"`
	}
	var into embedding
	text := "name: a\nUntagged: 2\nhidden: 3\ntagged:\n  a: 4\n"
	if err := parse(t, text).Decode(&into); err != nil {
		t.Fatal(err)
	}
	if into.Name != "a" || into.base.Hidden != "" || into.Hidden != 3 || into.Untagged != 2 || into.Tagged.A != 4 {
		t.Errorf("got %+v", into)
	}
	if out, err := strictyaml.Marshal(into); err != nil || string(out) != text {
		t.Errorf("written as %s, %v", out, err)
	}

	var unreachable struct{ *pointed }
	err := parse(t, "depth: 1").Decode(&unreachable)
	if err == nil || !strings.Contains(err.Error(), "f:1: depth: cannot be set") {
		t.Errorf("got %v", err)
	}
	if out, err := strictyaml.Marshal(unreachable); err != nil || string(out) != "{}\n" {
		t.Errorf("written as %s, %v", out, err)
	}
}

func TestTextThatIsNotText(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: \xff\n":           "f:2: not valid UTF-8",
		"a: 1\nb: c\x00\n":          `f:2: not valid YAML: control character '\x00'`,
		"a: \x7f\n":                 `f:1: not valid YAML: control character '\x7f'`,
		"\xff\xfea\x00:\x00 \x001":  "f:1: not valid UTF-8", // UTF-16
		"a: 1\r%TAG ! x\r---\n":     "f:1: not supported: a line that begins with %",
		"a: 1\n...\n%YAML 1.2\n---": "f:3: not supported: a line that begins with %",
	} {
		if _, err := strictyaml.Parse("f", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	if _, err := strictyaml.Parse("f", []byte("\uFEFFa: 1\n")); err != nil {
		t.Errorf("byte order mark: %v", err)
	}
}

func TestMarshalRefuses(t *testing.T) {
	for _, v := range []any{make(chan int), map[int]int{}, []byte{1}, struct{ F func() }{func() {}},
		map[string]any{"a": []any{complex(1, 1)}}} {
		if out, err := strictyaml.Marshal(v); err == nil {
			t.Errorf("%T was written as %s", v, out)
		}
	}
	if out, err := strictyaml.Marshal(nil); err != nil || string(out) != "null\n" {
		t.Errorf("nil was written as %s, %v", out, err)
	}
}
