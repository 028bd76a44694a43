package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestNoDecisions(t *testing.T) {
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`[]`)) }))
	defer admin.Close()
	for args, want := range map[string]string{
		"-n team": "No decisions found about pods in the namespace team: --all-namespaces lists those about all pods.",
		"-A":      "No decisions found.\n",
	} {
		if status, output := statusOf(t, "decisions "+args+" --admin "+admin.URL); status != 0 || !strings.Contains(output, want) {
			t.Errorf("decisions %s: status %d, %q, want %q", args, status, output, want)
		}
	}
}
