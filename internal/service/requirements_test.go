package service

import (
	"testing"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
)

// Only a strategy that uses the history of pods causes the cost of keeping it, and a reload can
// enable it at any time.
func TestHistoryIsKeptForItsReaders(t *testing.T) {
	requirementsWith := func(strategy string) requirements {
		t.Helper()
		c, err := config.Parse("outboard.yaml", []byte(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- path: /
  policies:
  - {type: GPUMemory, config: {scoringStrategy: {type: `+strategy+`}}}
`), config.Types{Policies: standard.Types(), Signals: signals.Types()})
		if err != nil {
			t.Fatal(err)
		}
		return requirementsOf(c)
	}
	for strategy, want := range map[string]bool{"BinPack": false, "Spread": false, "LeastWaste": true} {
		if got := requirementsWith(strategy); got.history != want {
			t.Errorf("scoringStrategy.type: %s needs the history: %v, want %v", strategy, got.history, want)
		}
	}
}
