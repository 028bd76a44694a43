package fields_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func TestMisspelled(t *testing.T) {
	keys := func(keys ...string) (all map[string]string) {
		all = map[string]string{}
		for _, key := range keys {
			all[key] = "x"
		}
		return all
	}
	const did, label = `annotation "outboard.dev/seat": unknown; did you mean outboard.dev/seats?`, `label "outboard.dev/seats": did you mean the annotation outboard.dev/seats?`
	for what, tc := range map[string]struct {
		annotations, labels map[string]string
		want                string
	}{
		"the keys":           {keys("outboard.dev/seats", "example.com/seats"), nil, ""},
		"similar":            {keys("outboard.dev/seat", "outboard.dev/seatss"), nil, did},
		"similar, and right": {keys("outboard.dev/seat", "outboard.dev/seats"), nil, did},
		"a label":            {nil, keys("outboard.dev/seats"), label},
		"of others":          {keys("outboard.dev/retry", "example.com/seat"), keys("seats", "example.com/seats"), ""},
	} {
		got := ""
		if err := fields.Misspelled(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations, Labels: tc.labels}}, "outboard.dev/seats", "example.com/seats"); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", what, got, tc.want)
		}
	}
}
