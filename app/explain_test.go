package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Where nothing is found, explain says in which namespace it looked.
func TestNothingToExplain(t *testing.T) {
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`[]`))
	}))
	defer admin.Close()
	for args, want := range map[string]string{
		"--latest -n team": "No decisions found in the namespace team: --all-namespaces lists those of all namespaces.\n",
		"--latest -A":      "No decisions found.\n",
		"-n team":          "No pod waits in the namespace team: --all-namespaces lists those of all namespaces.\n",
		"-A":               "No pod waits.\n",
	} {
		if status, output := statusOf(t, "explain "+args+" --admin "+admin.URL); status != 0 || !strings.Contains(output, want) {
			t.Errorf("explain %s: status %d, %q, want %q", args, status, output, want)
		}
	}
}

// The list says why a pod waits: with the numbers of the nearest node, or with the reason's text if
// it has none.
func TestWhyPodsWait(t *testing.T) {
	for row, want := range map[string]string{
		`"text": "too little memory", "nearest": {"node": "large", "have": 8, "want": 24}, "unit": "GiB"`: "large: 8 of 24 GiB\n",
		`"text": "no GPU of these models", "nearest": {"node": "large"}`:                                  "no GPU of these models\n",
	} {
		admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`[{"owner": "ns/Pod/a", "pod": "ns/a", "pods": 1, "reason": "R", ` + row + `}]`))
		}))
		if _, output := statusOf(t, "explain -A --admin "+admin.URL); !strings.HasSuffix(output, "  R       ns/a  "+want) {
			t.Errorf("%s:\n%swant %q", row, output, want)
		}
		admin.Close()
	}
}
