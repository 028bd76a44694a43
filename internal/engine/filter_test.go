package engine_test

import (
	"strings"
	"testing"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

var (
	tooLittle = &policy.Reason{Code: "TooLittle", Text: "too little is left", Unit: "MiB"}
	tooFew    = &policy.Reason{Code: "TooFew", Text: "too few are left", Unit: "GPUs"}
	broken    = &policy.Reason{Code: "Broken", Text: "the node is broken"}
)

// whole rejects broken nodes as unresolvable.
func whole(n *snapshot.Node) policy.Verdict {
	if number(n, "broken") != 0 {
		return policy.Verdict{Reason: broken, Unresolvable: true}
	}
	return policy.Verdict{}
}

func TestNew(t *testing.T) {
	p := &fake{}
	tests := []struct {
		name string
		o    engine.Options
		want string // in the error; "": no error
	}{
		{"no policy", engine.Options{}, ""},
		{"no name", engine.Options{Policies: []engine.WeightedPolicy{{Policy: p}}}, `must have a name`},
		{"no policy in a member", engine.Options{Policies: []engine.WeightedPolicy{{Name: "A"}}}, `policy "A": must have a name and a policy`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := engine.New(tt.o)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error is %v, want %q", err, tt.want)
			}
		})
	}
}
