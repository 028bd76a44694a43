package main

import (
	"debug/buildinfo"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// A registry has the image of the layout, with the same digest.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	dir, image := t.TempDir(), strings.TrimPrefix(server.URL, "http://")+"/team/outboard:dev"
	digest, err := writeLayout(dir, image, []binary{{program: outboard, os: "linux", arch: "arm64", info: &buildinfo.BuildInfo{}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := pushed(t.Context(), dir, image, digest); err != nil {
		t.Fatal(err)
	}
	to, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(to)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := index.Digest(); err != nil || got.String() != digest {
		t.Errorf("the registry has %s, want %s (%v)", got, digest, err)
	}
	if err := pushed(t.Context(), dir, "Not a name", digest); err == nil {
		t.Error("an invalid name is no error")
	}
}
