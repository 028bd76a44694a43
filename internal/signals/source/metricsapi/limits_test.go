package metricsapi_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/signals/source/metricsapi"
	"outboard.dev/outboard/signal"
)

// A source stops to read at its limits, whatever the list has.
func TestLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		item string
		want error
	}{
		"items":       {`{},`, signal.ErrTooLong},
		"fields":      {`{"window":["x","x","x","x","x","x"]},`, signal.ErrTooLong},
		"a long item": {`{"usage":{` + strings.Repeat(`"a":"1",`, 1<<20) + `"cpu":"1"}},`, signal.ErrTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			sent := 0
			done := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(done)
				io.WriteString(w, `{"items":[`)
				for sent < 64<<20 {
					n, err := io.WriteString(w, strings.Repeat(tc.item, max(1, 4096/len(tc.item))))
					if sent += n; err != nil {
						return
					}
				}
			}))
			defer server.Close()
			s, err := metricsapi.New(metricsapi.Config{Resource: "cpu"}, &rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Read(t.Context(), signal.Limits{Values: 1000, Bytes: 2 << 20}); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if <-done; sent > 32<<20 { // the rest is in buffers of the connection
				t.Error(fmt.Sprint("the server sent ", sent, " bytes"))
			}
		})
	}
}

// Short texts of amounts that take long to parse as quantities are no problem.
func TestAmounts(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"items":[{"metadata":{"name":"a"},"timestamp":"2026-01-01T12:00:30Z","usage":{"cpu":"250000000n"}},
			{"metadata":{"name":"b"},"timestamp":null,"usage":null},{"metadata":{"name":"c"},"usage":{"cpu":"1e-999999999"}}]}`)
	}))
	defer server.Close()
	s, err := metricsapi.New(metricsapi.Config{Resource: "cpu"}, &rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	samples, err := s.Read(t.Context(), signal.Limits{Values: 10, Bytes: 1000})
	if got := fmt.Sprint(len(samples), err); got != "2 <nil>" || samples[0].Key != "a" || samples[0].Number != 0.25 || samples[1].Number != 0 {
		t.Errorf("%s: %v", got, samples)
	}
}
