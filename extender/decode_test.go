package extender_test

import (
	"strings"
	"testing"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// Quantities that would keep the decoder busy for seconds, or hours, are refused;
// names and texts that only look like one are not.
func TestQuantitiesThatTakeForever(t *testing.T) {
	s := serve(t, &fakeCluster{view: view(threeNodes)})
	for quantity, refused := range map[string]bool{
		"1e-9999999999": true, "1.5E-123456": true, "1.e-9999999": true, "+1e-9999999": true, "-1e-9999999": true,
		"1e-99999": false, "100m": false,
	} {
		pod := `{"metadata":{"name":"a1e-1234567","annotations":{"x":"id-1e-12345678x"}},"spec":{"containers":[{"resources":{"limits":{"x":"` + quantity + `"}}}]}}`
		victims := `{"Pod":{"metadata":{"name":"p"}},"NodeNameToVictims":{"good":{"Pods":[` + pod + `]}}}`
		for verb, body := range map[string]string{
			"filter":  `{"Pod":` + pod + `,"NodeNames":["good"]}`,
			"nodes":   `{"Pod":{"metadata":{"name":"p"}},"Nodes":{"items":[{"metadata":{"name":"new"},"status":{"capacity":{"x":"` + quantity + `"}}}]}}`,
			"preempt": victims,
		} {
			text := ""
			if verb == "preempt" {
				text = decode[struct{ Error string }](t, s.post(t, verb, body)).Error
			} else {
				text = decode[extenderv1.ExtenderFilterResult](t, s.post(t, "filter", body)).Error
			}
			if got := strings.Contains(text, "negative exponent"); got != refused {
				t.Errorf("%s with quantity %q: Error is %q", verb, quantity, text)
			}
		}
	}
}
