package extender_test

import (
	"strings"
	"testing"
)

// Quantities that would take the decoder seconds or hours are rejected; names and texts that look like such quantities are not.
func TestCostlyQuantitiesAreRejected(t *testing.T) {
	s := serve(t, &fakeCluster{view: view(threeNodes)})
	for quantity, refused := range map[string]bool{
		"1e-9999999999": true, "1.5E-123456": true, "1.e-9999999": true, "+1e-9999999": true, "-1e-9999999": true,
		" 1e-9999999": true, "1e-9999999 ": true, "\u00a01e-9999999\u2003": true,
		"1e-9999": true, "1e-999": false, "100m": false,
	} {
		pod := `{"metadata":{"name":"a1e-1234567","annotations":{"x":"id-1e-12345678x"}},"spec":{"containers":[{"resources":{"limits":{"x":"` + quantity + `"}}}]}}`
		for verb, body := range map[string]string{
			"filter":  `{"Pod":` + pod + `,"NodeNames":["good"]}`,
			"nodes":   `{"Pod":{"metadata":{"name":"p"}},"Nodes":{"items":[{"metadata":{"name":"new"},"status":{"capacity":{"x":"` + quantity + `"}}}]}}`,
			"preempt": `{"Pod":` + pod + `,"NodeNameToMetaVictims":{}}`,
		} {
			path := verb
			if verb == "nodes" {
				path = "filter"
			}
			text := failure(t, s.post(t, path, body))
			if got := strings.Contains(text, "negative exponent"); got != refused {
				t.Errorf("%s with quantity %q: got Error %q", verb, quantity, text)
			}
		}
	}
}

// Numbers as quantities, which the Kubernetes libraries accept, are rejected, too.
func TestCostlyNumbersAreRejected(t *testing.T) {
	s := serve(t, &fakeCluster{view: view(threeNodes)})
	for limits, refused := range map[string]bool{
		`"x":1e-9999999`: true, `"x" : 1e-9999999 `: true, `"x":1e-9999999,"y":"1"`: true, `"x":1e-2`: false,
	} {
		pod := `{"metadata":{"name":"p","annotations":{"x":"{\"y\":1e-12345678,","z":"1 1e-12345678, 3"}},"spec":{"containers":[{"resources":{"limits":{` + limits + `}}}]}}`
		text := failure(t, s.post(t, "filter", `{"Pod":`+pod+`,"NodeNames":["good"]}`))
		if got := strings.Contains(text, "negative exponent"); got != refused {
			t.Errorf("limits %s: got Error %q", limits, text)
		}
	}
}

// Quantities of very many digits are rejected; other texts of digits, and those of usual keys, are not.
func TestQuantitiesOfManyDigits(t *testing.T) {
	s := serve(t, &fakeCluster{view: view(threeNodes)})
	for value, refused := range map[string]bool{
		`"` + strings.Repeat("9", 1001) + `"`: true, `"` + strings.Repeat("9", 200_000) + `"`: true, `" -` + strings.Repeat("9", 2001) + `Gi"`: true,
		`"1.` + strings.Repeat("3", 1000) + `"`: true, `"+.` + strings.Repeat("3", 5000) + `m"`: true,
		"1" + strings.Repeat("0", 3000):       true,
		`"` + strings.Repeat("9", 1000) + `"`: false, `"1"`: false,
	} {
		pod := `{"metadata":{"name":"p","annotations":{"modulus":"` + strings.Repeat("7", 900) + `","id":"a` + strings.Repeat("1", 4000) +
			`"}},"spec":{"containers":[{"resources":{"limits":{"x":` + value + `}}}]}}`
		for verb, body := range map[string]string{
			"filter":  `{"Pod":` + pod + `,"NodeNames":["good"]}`,
			"nodes":   `{"Pod":{"metadata":{"name":"p"}},"Nodes":{"items":[{"metadata":{"name":"new"},"status":{"capacity":{"x":` + value + `}}}]}}`,
			"preempt": `{"Pod":` + pod + `,"NodeNameToMetaVictims":{}}`,
		} {
			path := verb
			if verb == "nodes" {
				path = "filter"
			}
			text := failure(t, s.post(t, path, body))
			if got := strings.Contains(text, "a resource quantity has more than 1000 digits"); got != refused {
				t.Errorf("%s with a quantity of %d bytes, %.10s…: got Error %q", verb, len(value), value, text)
			}
		}
	}
}
