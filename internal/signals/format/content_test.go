package format_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/signals/format"
	"outboard.dev/outboard/signal"
)

var limits = signal.Limits{Values: 1000, Bytes: 1 << 20}

func decode(t *testing.T, c format.Document, doc string, limits signal.Limits) ([]signal.Sample, error) {
	t.Helper()
	d, err := format.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return d.Decode(strings.NewReader(doc), limits)
}

// text returns the samples in order of key.
func text(samples []signal.Sample) string {
	slices.SortFunc(samples, func(a, b signal.Sample) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Number, b.Number))
	})
	var parts []string
	for _, s := range samples {
		parts = append(parts, fmt.Sprintf("%s=%v", s.Key, s.Number))
	}
	return strings.Join(parts, " ")
}

var (
	items  = format.Document{Items: "{.hosts[*]}", Key: "{.name}", Value: "{.load}"}
	number = format.Document{Value: "{.status.load}"}
)

func TestDecode(t *testing.T) {
	mapping := format.Document{}
	for name, tc := range map[string]struct {
		content   format.Document
		doc, want string
	}{
		"yaml mapping":        {mapping, "n1: 0.25\nn2: 3\n", "n1=0.25 n2=3"},
		"json mapping":        {mapping, `{"n1": 0.25, "n2": 3e2}`, "n1=0.25 n2=300"},
		"json as yaml":        {mapping, "\uFEFF" + `{"n1": 0.25}`, "n1=0.25"},
		"flow yaml":           {mapping, `{n1: 0.25}`, "n1=0.25"},
		"empty mapping":       {mapping, `{}`, ""},
		"all kinds of values": {mapping, `{"a": "0.25", "b": "500m", "c": "16Gi", "d": true, "e": false, "f": null, "g": "", "h": -1, "i": " 7 ", "j": "2E", "k": "1e3", "": 5}`, "a=0.25 b=0.5 c=1.7179869184e+10 d=1 e=0 h=-1 i=7 j=2e+18 k=1000"},
		"not finite":          {mapping, `{"a": "NaN", "b": "+Inf", "c": "-inf"}`, "a=NaN b=+Inf c=-Inf"},
		"alias":               {mapping, "n1: &x 4\nn2: *x\n", "n1=4 n2=4"},
		"items":               {items, `{"hosts": [{"name": "n1", "load": 0.5}, {"name": "n2", "load": "2"}, {"name": "n3"}, {"load": 1}, {"name": 12, "load": 3}]}`, "12=3 n1=0.5 n2=2"},
		"items in yaml":       {items, "hosts:\n- {name: n1, load: 0.5}\n- {name: n2, load: 1}\n", "n1=0.5 n2=1"},
		"items of a mapping":  {format.Document{Items: "{.hosts.*}", Key: "{.name}", Value: "{.load}"}, `{"hosts": {"x": {"name": "n1", "load": 1}, "y": {"name": "n2", "load": 2}}}`, "n1=1 n2=2"},
		"items of a list":     {format.Document{Items: "{[*]}", Key: "{.name}", Value: "{.a.b[0]}"}, `[{"name": "n1", "a": {"b": [4, 5]}}]`, "n1=4"},
		"filtered":            {format.Document{Items: `{.hosts[?(@.kind=="gpu")]}`, Key: "{.name}", Value: "{.load}"}, `{"hosts": [{"kind": "gpu", "name": "n1", "load": 1}, {"kind": "cpu", "name": "n2", "load": 2}]}`, "n1=1"},
		"filtered by number":  {format.Document{Items: `{.hosts[?(@.load>0.5)]}`, Key: "{.name}", Value: "{.load}"}, `{"hosts": [{"name": "n1", "load": 1}, {"name": "n2", "load": 0.25}]}`, "n1=1"},
		"items of one key":    {items, `{"hosts": [{"name": "n1", "load": 1}, {"name": "n1", "load": 2}]}`, "n1=1 n1=2"},
		"no items":            {items, `{"hosts": []}`, ""},
		"one number":          {number, `{"status": {"load": "250m"}}`, "=0.25"},
		"the whole document":  {format.Document{Value: "{@}"}, `42`, "=42"},
	} {
		t.Run(name, func(t *testing.T) {
			samples, err := decode(t, tc.content, tc.doc, limits)
			if err != nil {
				t.Fatal(err)
			}
			if got := text(samples); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	mapping := format.Document{}
	bomb := "a: &a [1,1,1,1,1,1,1,1,1]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	for name, tc := range map[string]struct {
		content   format.Document
		doc, want string
	}{
		"empty":             {mapping, "", "must not be empty"},
		"half a document":   {mapping, `{"a": 1`, "not valid YAML"},
		"a second document": {mapping, `{"a": 1} {"b": 2}`, "not valid YAML"},
		"web page":          {mapping, "<html><body>Log in</body></html>", "not a mapping"},
		"list":              {mapping, "[1, 2]", "not a mapping"},
		"list of a key":     {mapping, `{"a": [1]}`, `"a": a list is not a number`},
		"mapping of a key":  {mapping, `{"a": {"b": 1}}`, `"a": a mapping is not a number`},
		"word":              {mapping, `{"a": "many"}`, `"a": "many" is not a number`},
		"suffix alone":      {mapping, `{"a": "Gi"}`, `"Gi" is not a number`},
		"unknown suffix":    {mapping, `{"a": "5mm"}`, `"5mm" is not a number`},
		"hexadecimal":       {mapping, `{"a": "0x1p4"}`, `"0x1p4" is not a number`},
		"huge number":       {mapping, `{"a": "1e999"}`, `too large`},
		"slow quantity":     {mapping, `{"a": "1e-100000000k"}`, "is not a number"},
		"key twice in yaml": {mapping, "a: 1\na: 2", "document:2: a: Duplicate field"},
		"ambiguous yaml":    {mapping, "a: 0x10", "document:1: a"},
		"alias bomb":        {mapping, bomb, "must not have more than"},
		"deep json":         {mapping, strings.Repeat("[", 100_000), "exceeded max depth"},
		"deep yaml":         {mapping, "a: " + strings.Repeat("[", 100) + strings.Repeat("]", 100), "must not nest deeper"},
		"wrong paths":       {items, `{"hosts": [{"host": "n1", "load": 1}]}`, "none of its items has both"},
		"a mapping as key":  {items, `{"hosts": [{"name": {}, "load": 1}]}`, "{.name}: a mapping is not a key"},
		"several values":    {format.Document{Items: "{[*]}", Key: "{.n}", Value: "{.v[*]}"}, `[{"n": "a", "v": [1, 2]}]`, "{.v[*]} selects 2 values"},
		"filter of no list": {format.Document{Items: "{.h[?(@.a==1.0)]}", Key: "{.n}", Value: "{.v}"}, `{"h": "` + strings.Repeat("x", 5000) + `"}`, "{.h[?(@.a==1.0)]}: does not match the document"},
		"no number":         {number, `{"status": {}}`, "{.status.load} selects nothing"},
		"list for a number": {number, `{"status": {"load": []}}`, "{.status.load}: a list is not a number"},
		"all null":          {mapping, `{"a": null}`, "none of its items has both"},
	} {
		t.Run(name, func(t *testing.T) {
			samples, err := decode(t, tc.content, tc.doc, limits)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %s, error %v; want one with %q", text(samples), err, tc.want)
			}
			if len(err.Error()) > 500 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// endless is a document without an end.
type endless struct {
	head, body string
	read       int64
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		s := e.body
		if e.read == 0 {
			s = e.head
		}
		c := copy(p[n:], s)
		n, e.read = n+c, e.read+int64(c)
	}
	return n, nil
}

func TestLimits(t *testing.T) {
	three := map[string]struct {
		content format.Document
		doc     string
	}{
		"mapping": {format.Document{}, `{"a": 1, "b": 2, "c": 3}`},
		"items":   {items, `{"hosts": [{"name": "a", "load": 1}, {"name": "b", "load": 2}, {"name": "c", "load": 3}]}`},
	}
	for name, tc := range three {
		size := int64(len(tc.doc))
		for _, at := range []struct {
			limits signal.Limits
			want   error
		}{
			{signal.Limits{Values: 3, Bytes: size}, nil},
			{signal.Limits{Values: 2, Bytes: size}, signal.ErrTooMany},
			{signal.Limits{Values: 3, Bytes: size - 1}, signal.ErrTooLong},
			{signal.Limits{}, signal.ErrTooLong},
		} {
			if _, err := decode(t, tc.content, tc.doc, at.limits); !errors.Is(err, at.want) {
				t.Errorf("%s with %+v: %v, want %v", name, at.limits, err, at.want)
			}
		}
	}
	for name, tc := range map[string]struct {
		content format.Document
		doc     *endless
	}{
		"json": {format.Document{}, &endless{head: "[", body: "1,"}},
		"yaml": {format.Document{}, &endless{head: "a:", body: "\n- b"}},
	} {
		d, err := format.New(tc.content)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Decode(tc.doc, limits); !errors.Is(err, signal.ErrTooLong) {
			t.Errorf("endless %s: %v", name, err)
		}
		if tc.doc.read > limits.Bytes+1 {
			t.Errorf("endless %s: %d bytes were read", name, tc.doc.read)
		}
	}
}

// TestReadError: an error of the reader does not truncate the document silently.
func TestReadError(t *testing.T) {
	broken := errors.New("connection reset")
	for _, c := range []struct {
		format.Document
		begin string
	}{{format.Document{}, "n1: 1\n"}, {format.Document{}, `{"n1": 1, `}} {
		d, err := format.New(c.Document)
		if err != nil {
			t.Fatal(err)
		}
		doc := io.MultiReader(strings.NewReader(c.begin), failing{broken})
		if _, err := d.Decode(doc, limits); !errors.Is(err, broken) {
			t.Errorf("%s: %v", c.begin, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestNewRefuses(t *testing.T) {
	for want, c := range map[string]format.Document{
		"items: Invalid value: \"{.a\": unclosed":     {Items: "{.a", Key: "{.b}", Value: "{.c}"},
		`must be one path in braces`:                  {Value: ".status.load"},
		`value: Invalid value: "{.a} of {.b}": must`:  {Value: "{.a} of {.b}"},
		`"range" is not supported`:                    {Items: "{range .a[*]}{.b}{end}", Key: "{.b}", Value: "{range}"},
		`items: Invalid value: "{..a}": ".." is not`:  {Items: "{..a}", Key: "{.b}", Value: "{.c}"},
		`items: Invalid value: "{.a[?(@..b==1)]}": "`: {Items: "{.a[?(@..b==1)]}", Key: "{.b}", Value: "{.c}"},
	} {
		if _, err := format.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

// fuzz checks the properties of every document.
func fuzz(f *testing.F, contents ...format.Document) {
	var decoders []*format.Decoder
	for _, c := range contents {
		d, err := format.New(c)
		if err != nil {
			f.Fatal(err)
		}
		decoders = append(decoders, d)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		few := signal.Limits{Values: 3, Bytes: 4096}
		for _, d := range decoders {
			samples, err := d.Decode(strings.NewReader(doc), few)
			if err != nil && samples != nil {
				t.Errorf("samples and the error %v", err)
			}
			if len(samples) > few.Values {
				t.Errorf("%d samples", len(samples))
			}
			again, errAgain := d.Decode(strings.NewReader(doc), few)
			if text(again) != text(samples) || (err == nil) != (errAgain == nil) {
				t.Errorf("decoded to %s (%v), then to %s (%v)", text(samples), err, text(again), errAgain)
			}
			if err == nil && int64(len(doc)) > few.Bytes {
				t.Errorf("a document of %d bytes is valid", len(doc))
			}
		}
	})
}

func FuzzDocument(f *testing.F) {
	f.Add(`{"n1": 0.25, "n2": "500m", "n3": true, "n4": null}`)
	f.Add(`{"hosts": [{"name": "n1", "load": 0.5}, {"name": "n2"}], "status": {"load": 3}}`)
	f.Add(`[["a", 1], [2, 3]]`)
	f.Add("n1: 0.25\nn2: 500m\nn3: &x true\nn4: *x\n")
	f.Add("hosts:\n- {name: n1, load: 0.5}\n- name: n2\nstatus: {load: 3}\n")
	fuzz(f,
		format.Document{}, items, number,
		format.Document{Items: `{.hosts[?(@.load>0.5)]}`, Key: "{.name}", Value: "{['load','name'][0]}"},
		format.Document{Items: "{.*}", Key: "{[-1:]}", Value: "{.*}"})
}
