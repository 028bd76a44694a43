package fields_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy/fields"
)

func TestFields(t *testing.T) {
	at := field.NewPath("x")
	seen := fields.Unique{"red": field.NewPath("y")}
	const extended = "must be an extended resource such as example.com/gpu-memory, not one of Kubernetes' own"
	for name, tt := range map[string]struct {
		got  field.ErrorList
		want string // the beginning of the only error; "" for none
	}{
		"valid":            {fields.Valid(at, "", content.IsLabelValue), ""},
		"not valid":        {fields.Valid(at, "a b", content.IsLabelValue), `x: Invalid value: "a b": a valid label must be`},
		"key":              {fields.Key(at, "example.com/a"), ""},
		"no key":           {fields.Key(at, ""), ""},
		"bad key":          {fields.Key(at, "a b"), `x: Invalid value: "a b": name part must`},
		"no prefix":        {fields.Key(at, "/a"), `x: Invalid value: "/a": prefix part must be non-empty`},
		"resource":         {fields.ExtendedResource(at, "example.com/gpu"), ""},
		"no resource":      {fields.ExtendedResource(at, ""), "x: Required value: must name an extended resource"},
		"bad resource":     {fields.ExtendedResource(at, "example.com/a b"), `x: Invalid value: "example.com/a b": name part must`},
		"built in":         {fields.ExtendedResource(at, "cpu"), `x: Invalid value: "cpu": ` + extended},
		"Kubernetes' own":  {fields.ExtendedResource(at, "kubernetes.io/gpu"), `x: Invalid value: "kubernetes.io/gpu": ` + extended},
		"of a quota":       {fields.ExtendedResource(at, "requests.example.com/a"), `x: Invalid value: "requests.example.com/a": ` + extended},
		"too long a quota": {fields.ExtendedResource(at, strings.Repeat(strings.Repeat("a", 59)+".", 4)+"example/gpu"), `x: Invalid value: "aaa`},
		"new":              {seen.Add(at, "blue"), ""},
		"empty":            {append(seen.Add(at, ""), seen.Add(at, "")...), ""},
		"there already":    {seen.Add(at, "red"), `x: Duplicate value: "red": also in y`},
	} {
		got := ""
		for _, err := range tt.got {
			got += err.Error()
		}
		if got != "" && tt.want == "" || len(tt.got) > 1 || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
