package app

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// In a pod, the replica in this pod is read if it responds and no flag names other replicas.
func TestReplicaInThisPod(t *testing.T) {
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "local") }))
	defer replica.Close()
	get := func(ctx context.Context, client *http.Client, admin string) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, admin, nil)
		if err != nil {
			return "", err
		}
		res, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return string(body), err
	}
	t.Setenv("KUBECONFIG", "/nowhere")
	const others = "(set --kubeconfig, or --admin for one service)"
	for _, tt := range []struct {
		name, host, local string
		args              []string
		want              string // on standard error; "" for a failure to find other replicas
	}{
		{"in its pod", "10.0.0.1", replica.URL, nil, "outboard: from the replica in this pod only\n"},
		{"outside of pods", "", replica.URL, nil, ""},
		{"in another pod", "10.0.0.1", "127.0.0.1:1", nil, ""},
		{"with a kubeconfig", "10.0.0.1", replica.URL, []string{"--kubeconfig=/nowhere"}, ""},
		{"with a namespace of Outboard", "10.0.0.1", replica.URL, []string{"--outboard-namespace=other"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", tt.host)
			t.Setenv("KUBERNETES_SERVICE_PORT", "443")
			var service serviceFlags
			var value string
			cmd := &cobra.Command{Use: "outboard", SilenceUsage: true, SilenceErrors: true, RunE: func(cmd *cobra.Command, _ []string) error {
				responses, err := read(cmd, &service, get)
				if err == nil {
					value = responses[0].Value
				}
				return err
			}}
			service.register(cmd)
			service.local = adminAddress(tt.local)
			var stderr bytes.Buffer
			cmd.SetErr(&stderr)
			cmd.SetArgs(tt.args)
			err := cmd.ExecuteContext(t.Context())
			if tt.want != "" && (err != nil || value != "local" || stderr.String() != tt.want) {
				t.Errorf("got %q, %v, and %q on standard error", value, err, &stderr)
			}
			if tt.want == "" && (err == nil || !strings.Contains(err.Error(), others) || stderr.Len() > 0) {
				t.Errorf("got %q, %v, and %q on standard error", value, err, &stderr)
			}
		})
	}
}
