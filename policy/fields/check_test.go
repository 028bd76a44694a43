package fields_test

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy/fields"
)

type size string

type Inner struct {
	Size size `json:"size" values:"Small,Large"`
}

type outer struct {
	Inner                   // its fields are those of outer
	Max    int32            `json:"max" limits:"1..110"`
	Least  int64            `json:"least" limits:"2.."`
	Rate   float64          `json:"rate" limits:">0..10"`
	Any    *int32           `json:"any" limits:"0..5"`
	Uint   uint8            `json:"uint" limits:"0..7"`
	Maybe  size             `json:"maybe" values:",Small,Large"`
	List   []Inner          `json:"list"`
	Nested *Inner           `json:"nested"`
	Free   string           `json:"free"`
	Name   string           `json:"name" required:"must name it"`
	Own    string           `json:"own" required:"-"`
	Names  []string         `json:"names" required:"must name some" items:"must not be empty"`
	Key    string           `json:"key" form:"key"`
	Keys   []string         `json:"keys" form:"key"`
	A      string           `json:"a" oneOf:"letter"`
	C      []string         `json:"c" oneOf:"letter"`
	B      *int32           `json:"b" oneOf:"letter"`
	Up     *int32           `json:"up" oneOf:"way?"`
	Down   bool             `json:"down" oneOf:"way?"`
	Wait   time.Duration    `json:"wait" limits:"0s..24h"`
	Delay  *metav1.Duration `json:"delay" limits:"1s..24h"`
	Hidden int              `json:"-" limits:"1..2"`
}

// Check finds what the tags forbid, at any depth, and nothing else.
func TestCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*outer)
		want   string // the only error; "": none
	}{
		"valid":               {func(o *outer) {}, ""},
		"lowest":              {func(o *outer) { o.Max, o.Least, o.Rate, o.Any = 1, 2, 1e-300, new(int32(0)) }, ""},
		"highest":             {func(o *outer) { o.Max, o.Least, o.Rate, o.Any = 110, 1<<60, 10, new(int32(5)) }, ""},
		"too low":             {func(o *outer) { o.Max = 0 }, "x.max: Invalid value: 0: must be between 1 and 110"},
		"too high":            {func(o *outer) { o.Max = 111 }, "x.max: Invalid value: 111: must be between 1 and 110"},
		"below the least":     {func(o *outer) { o.Least = 1 }, "x.least: Invalid value: 1: must be at least 2"},
		"not more":            {func(o *outer) { o.Rate = 0 }, "x.rate: Invalid value: 0: must be more than 0, and at most 10"},
		"NaN":                 {func(o *outer) { o.Rate = math.NaN() }, "x.rate: Invalid value: NaN: must be more than 0, and at most 10"},
		"unsigned":            {func(o *outer) { o.Uint = 8 }, "x.uint: Invalid value: 8: must be between 0 and 7"},
		"a pointer":           {func(o *outer) { o.Any = new(int32(6)) }, "x.any: Invalid value: 6: must be between 0 and 5"},
		"embedded":            {func(o *outer) { o.Size = "Medium" }, `x.size: Unsupported value: "Medium": supported values: "Small", "Large"`},
		"empty":               {func(o *outer) { o.Size = "" }, `x.size: Unsupported value: "": supported values: "Small", "Large"`},
		"may be empty":        {func(o *outer) { o.Maybe = "" }, ""},
		"not an optional one": {func(o *outer) { o.Maybe = "Medium" }, `x.maybe: Unsupported value: "Medium": supported values: "Small", "Large"`},
		"in a list":           {func(o *outer) { o.List = []Inner{{"Small"}, {"S"}} }, `x.list[1].size: Unsupported value: "S": supported values: "Small", "Large"`},
		"behind a pointer":    {func(o *outer) { o.Nested = &Inner{"L"} }, `x.nested.size: Unsupported value: "L": supported values: "Small", "Large"`},
		"no name":             {func(o *outer) { o.Name = "" }, "x.name: Required value: must name it"},
		"a blank name":        {func(o *outer) { o.Name = " " }, "x.name: Required value: must name it"},
		"said elsewhere":      {func(o *outer) { o.Own = "" }, ""},
		"no list":             {func(o *outer) { o.Names = nil }, "x.names: Required value: must name some"},
		"an empty list":       {func(o *outer) { o.Names = []string{} }, "x.names: Required value: must name some"},
		"an empty item":       {func(o *outer) { o.Names = []string{"a", ""} }, "x.names[1]: Required value: must not be empty"},
		"a key":               {func(o *outer) { o.Key, o.Keys = "example.com/a", []string{"a"} }, ""},
		"no key":              {func(o *outer) { o.Key = "/a" }, `x.key: Invalid value: "/a": prefix part must be non-empty`},
		"no key in a list":    {func(o *outer) { o.Keys = []string{"a", "/a"} }, `x.keys[1]: Invalid value: "/a": prefix part must be non-empty`},
		"none of a group":     {func(o *outer) { o.A, o.C = "", []string{} }, "x: Required value: must set one of a, b and c"},
		"two of a group":      {func(o *outer) { o.C = []string{"c"} }, "x.c: Forbidden: cannot be set together with a: set only one of a, b and c"},
		"another of a group":  {func(o *outer) { o.A, o.B = "", new(int32(0)) }, ""},
		"one of the optional": {func(o *outer) { o.Up = new(int32(0)) }, ""},
		"two of the optional": {func(o *outer) { o.Up, o.Down = new(int32(0)), true }, "x.up: Forbidden: cannot be set together with down: set only one of down and up"},
		"the longest":         {func(o *outer) { o.Wait, o.Delay = 24*time.Hour, &metav1.Duration{Duration: time.Second} }, ""},
		"too long":            {func(o *outer) { o.Wait = 24*time.Hour + 1 }, `x.wait: Invalid value: "24h0m0.000000001s": must be between 0s and 24h`},
		"too short":           {func(o *outer) { o.Delay = &metav1.Duration{} }, `x.delay: Invalid value: "0s": must be between 1s and 24h`},
		"not in files":        {func(o *outer) { o.Hidden = 3 }, ""},
	} {
		o := outer{Inner: Inner{"Small"}, Max: 5, Least: 5, Rate: 5, Maybe: "Large", Name: "n", Own: "o", Names: []string{"n"}, A: "a"}
		tt.change(&o)
		got := ""
		for _, err := range fields.Check(field.NewPath("x"), &o) {
			got += err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
	if errs := fields.Check(nil, outer{}); len(errs) != 7 || errs[0].Field != "size" {
		t.Errorf("without a path: %v", errs)
	}
}

func TestWrongTag(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a tag that is no limits does not panic")
		}
	}()
	fields.Check(nil, struct {
		N int `limits:"1-2"`
	}{})
}
