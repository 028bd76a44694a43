package replicas_test

import (
	"io"
	"net/http"
	"testing"

	"outboard.dev/outboard/internal/replicas"
	"outboard.dev/outboard/internal/respond"
)

// responder is a replica in memory.
type responder func(*http.Request) *http.Response

func (f responder) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// zeros counts what is read of it.
type zeros struct{ read int }

func (z *zeros) Read(p []byte) (int, error) {
	z.read += len(p)
	return len(p), nil
}

// A response that is too large takes bounded memory.
func TestLargeResponses(t *testing.T) {
	body := new(zeros)
	replica := replicas.At("a", &http.Client{Transport: responder(func(*http.Request) *http.Response {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(io.LimitReader(body, 4*respond.MaxBody))}
	})})
	got := replicas.FetchAll(t.Context(), []replicas.Replica{replica}, replicas.FetchJSON[string]("/x"))
	if got[0].Err == nil || body.read > 2*respond.MaxBody {
		t.Errorf("read %d bytes, error %v", body.read, got[0].Err)
	}
}
