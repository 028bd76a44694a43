package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/server"
)

func TestNewRefusesBadOptions(t *testing.T) {
	p := newPKI(t)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		opts server.Options
		want []string
	}{
		{"missing file", server.Options{Handler: echo, TLS: &server.TLSOptions{CertFile: p.file("missing.crt"), KeyFile: p.file("tls.key")}}, []string{"missing.crt", "no such file"}},
		{"empty certificate", server.Options{Handler: echo, TLS: &server.TLSOptions{CertFile: empty, KeyFile: p.file("tls.key")}}, []string{empty}},
		{"empty authorities", server.Options{Handler: echo, TLS: &server.TLSOptions{CertFile: p.file("tls.crt"), KeyFile: p.file("tls.key"), ClientCAFile: empty}}, []string{empty, "no PEM certificate"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			_, err := server.New(tc.opts)
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("New() error = %v, want one with %q", err, want)
				}
			}
		})
	}
}
