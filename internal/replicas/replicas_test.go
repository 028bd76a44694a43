package replicas_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/replicas"
)

// The replicas are the pods with the label that have not ended. Only those that run and have an admin address are asked.
func TestFind(t *testing.T) {
	pod := func(name, phase, port string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"containers":[{"name":"proxy"},{"name":"outboard","ports":[{"name":%q,"containerPort":8080}]}]},"status":{"phase":%q}}`, name, port, phase)
	}
	for name, tt := range map[string]struct {
		pods []string
		want []string // what the replicas respond, or the error
	}{
		"none":       {nil, []string{"no response of Outboard (docs/troubleshooting.md, Calls fail): namespace ns has no pod of Outboard (with the label app.kubernetes.io/name=outboard)"}},
		"ended only": {[]string{pod("a", "Failed", "metrics")}, []string{"no response of Outboard (docs/troubleshooting.md, Calls fail): namespace ns has no pod of Outboard (with the label app.kubernetes.io/name=outboard)"}},
		"all states": {
			[]string{pod("a", "Running", "metrics"), pod("b", "Pending", "metrics"), pod("c", "Succeeded", "metrics"), pod("d", "Running", "http"), pod("e", "Running", "metrics")},
			[]string{"a: from http://a", "b: the pod is Pending", "d: the pod has no container port with the name metrics", "e: refused"},
		},
	} {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/namespaces/ns/pods" || r.URL.Query().Get("labelSelector") != replicas.Selector {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"apiVersion":"v1","kind":"PodList","items":[%s]}`, strings.Join(tt.pods, ","))
		}))
		var got []string
		found, err := replicas.Find(t.Context(), &rest.Config{Host: api.URL}, "ns")
		api.Close()
		if err != nil {
			got = []string{err.Error()}
		}
		responses := replicas.FetchAll(t.Context(), found, func(_ context.Context, _ *http.Client, admin string) (string, error) {
			if admin == "http://e" {
				return "", errors.New("refused")
			}
			return "from " + admin, nil
		})
		for _, r := range responses {
			if r.Err != nil {
				r.Value = r.Err.Error()
			}
			got = append(got, r.Replica+": "+r.Value)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
