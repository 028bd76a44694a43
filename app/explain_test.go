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
