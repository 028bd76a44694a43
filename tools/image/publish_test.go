package main

import (
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var cosignModule = regexp.MustCompile(`github\.com/sigstore/cosign/\S+@\S+`)

// TestPublish is the dry run of .github/workflows/release.yaml: it publishes a release to a registry in this process, signed with a key,
// and reads it as its users do. Only a workflow has an identity that signs without a key, and GitHub writes the provenance.
func TestPublish(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	address, version := strings.TrimPrefix(server.URL, "http://")+"/team", strings.TrimPrefix(tag, "v")
	dist := releaseIn(t, filepath.Join(t.TempDir(), "clone"), address)

	dir := t.TempDir()
	cosign := func(args ...string) {
		t.Helper()
		tool(t, dir, append([]string{"go", "run", string(cosignModule.Find(content(t, ".", "publish")))}, args...)...)
	}
	t.Setenv("COSIGN_PASSWORD", "")
	cosign("generate-key-pair")
	cosign("signing-config", "create", "--out", "services.json") // none: no transparency log
	printed := strings.Fields(tool(t, ".", "./publish", dist, address, tag, "--key", dir+"/cosign.key", "--signing-config", dir+"/services.json"))
	if len(printed) != 2 {
		t.Fatalf("publish prints %q, not the image and the chart", printed)
	}
	image, chart := printed[0], printed[1]
	t.Logf("published %s and %s, and for downloads:\n%s", image, chart, strings.Join(list(t, dist), "\n"))

	reference, err := name.NewDigest(image)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		platform := reference.Context().Digest(m.Digest.String()).String()
		cosign("verify", "--key", "cosign.pub", "--insecure-ignore-tlog", platform)
		cosign("verify-attestation", "--type", "spdxjson", "--key", "cosign.pub", "--insecure-ignore-tlog", platform)
	}
	cosign("verify", "--key", "cosign.pub", "--insecure-ignore-tlog", image)
	cosign("verify", "--key", "cosign.pub", "--insecure-ignore-tlog", chart)
	cosign("verify-blob", "--key", "cosign.pub", "--insecure-ignore-tlog", "--bundle", dist+"/SHA256SUMS.sigstore.json", dist+"/SHA256SUMS")

	rendered := tool(t, "../render", "go", "tool", "helm.sh/helm/v4/cmd/helm", "template", "outboard", "oci://"+address+"/charts/outboard",
		"--version", version, "--plain-http")
	for _, text := range []string{rendered, string(content(t, dist, "quickstart.yaml"))} {
		if !strings.Contains(text, strings.Replace(image, "@", ":"+tag+"@", 1)) {
			t.Errorf("the chart in the registry, or quickstart.yaml, does not have the image %s:\n%s", image, text)
		}
	}
}
