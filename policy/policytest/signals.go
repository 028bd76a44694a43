package policytest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"outboard.dev/outboard/snapshot"
)

// Now is the default time of the values of [Signals].
var Now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// Signals returns the signals in a YAML mapping from their names to their values: by key, a number,
// or a mapping with the number, its time, and whether it is stale. It panics if the text is
// invalid.
//
//	cpu:
//	  a: 0.25
//	  b: {number: 0.5, at: "2026-01-01T11:59:30Z"}
//	  c: {number: 0.5, stale: true}
func Signals(text string) []*snapshot.Signal { return must(parseSignals(text)) }

type signalValue struct {
	Number float64   `json:"number"`
	At     time.Time `json:"at"`
	Stale  bool      `json:"stale"`
}

func (v *signalValue) UnmarshalJSON(data []byte) error {
	if data[0] != '{' {
		return json.Unmarshal(data, &v.Number)
	}
	type plain signalValue
	return unmarshal(data, (*plain)(v))
}

func parseSignals(text string) ([]*snapshot.Signal, error) {
	var written map[string]map[string]signalValue
	if err := unmarshal([]byte(text), &written); err != nil {
		return nil, fmt.Errorf("signals: %w", err)
	}
	var signals []*snapshot.Signal
	for _, name := range slices.Sorted(maps.Keys(written)) {
		values := map[string]snapshot.Value{}
		for key, v := range written[name] {
			if v.At.IsZero() {
				v.At = Now
			}
			values[key] = snapshot.Value{Number: v.Number, At: v.At, Stale: v.Stale}
		}
		signals = append(signals, snapshot.NewSignal(name, values))
	}
	return signals, nil
}
