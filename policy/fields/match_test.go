package fields_test

import (
	"testing"

	"outboard.dev/outboard/policy/fields"
)

// A Match without values matches any value, also an empty one, and one with values only these.
func TestMatch(t *testing.T) {
	labels := map[string]string{"zone": "a", "empty": ""}
	for _, tt := range []struct {
		match fields.Match
		want  bool
	}{
		{fields.Match{Key: "zone"}, true},
		{fields.Match{Key: "empty"}, true},
		{fields.Match{Key: "absent"}, false},
		{fields.Match{Key: "zone", Values: []string{"b", "a"}}, true},
		{fields.Match{Key: "zone", Values: []string{"b", ""}}, false},
		{fields.Match{Key: "empty", Values: []string{""}}, true},
		{fields.Match{Key: "absent", Values: []string{""}}, false},
	} {
		if got := tt.match.In(labels); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.match, got, tt.want)
		}
	}
}
