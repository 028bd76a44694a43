package fields_test

import (
	"strings"
	"testing"

	"outboard.dev/outboard/policy/fields"
)

func TestNearest(t *testing.T) {
	known := []string{"address", "tls", "clientCAFile", "http2", "weight", "weights"}
	for name, want := range map[string]string{
		"adress": "address", "ADDRESS": "address", "addresses": "address", "tsl": "tls", "clientCaFile": "clientCAFile",
		"clientCAFil": "clientCAFile", "http": "http2", "wieght": "weight", "weightss": "weights",
		"colour": "", "x": "", "": "", strings.Repeat("address", 1000): "",
	} {
		if got := fields.Nearest(name, known); got != want {
			t.Errorf("%.20s: got %q, want %q", name, got, want)
		}
	}
}
