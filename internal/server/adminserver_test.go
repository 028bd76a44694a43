package server_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/server"
)

// A process that serves no calls also has an admin listener, which reports the checks and ends with the context.
func TestAdminServerAlone(t *testing.T) {
	ready := func() error { return nil }
	a, err := server.ListenAdmin(server.Options{
		Logger: slog.New(slog.DiscardHandler), Admin: server.AdminOptions{Address: "127.0.0.1:0", Checks: []server.Check{{Name: "cluster", Ready: ready}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	res, err := http.Get("http://" + a.Addr().String() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(body), "cluster: ok") {
		t.Errorf("readyz: %d, %v\n%s", res.StatusCode, err, body)
	}
	if _, err := server.ListenAdmin(server.Options{Logger: slog.New(slog.DiscardHandler), Admin: server.AdminOptions{Address: a.Addr().String()}}); err == nil {
		t.Error("got no error for an address that is in use")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the admin server ends with %v", err)
	}
}
