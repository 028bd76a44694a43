package strictyaml_test

import (
	"testing"

	"outboard.dev/outboard/config/strictyaml"
)

// The error for a renamed field has its new name, at the places where the new field exists, even if
// the names are not similar.
func TestFormerNames(t *testing.T) {
	type strategy struct {
		Type string `json:"type"`
	}
	renamed := struct {
		Strategy strategy `json:"scoringStrategy"`
		Delay    string   `json:"metricDelay"`
	}{}
	other := struct {
		Set  string `json:"set"`
		Pair string `json:"spares"`
	}{}
	for _, tt := range []struct {
		text string
		into any
		want string
	}{
		{"settle: 1m", &renamed, `f:1: settle: Unknown field: did you mean "metricDelay"?`},
		{"scoreBy: size", &renamed, `f:1: scoreBy: Unknown field: did you mean "scoringStrategy.type"?`},
		{"spare: 1", &renamed, `f:1: spare: Unknown field: known here: scoringStrategy, metricDelay`},
		{"per: pod", &other, `f:1: per: Unknown field: known here: set, spares`},
		{"spare: 1", &other, `f:1: spare: Unknown field: did you mean "spares"?`},
	} {
		v, err := strictyaml.Parse("f", []byte(tt.text))
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Decode(tt.into); err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v, want %s", tt.text, err, tt.want)
		}
	}
}
