// Command image writes the container image of Outboard for several platforms as an OCI layout, without a container
// runtime. The image has the static binary, the CA certificates of Mozilla, and a list of the Go modules in the binary
// (SBOM), and nothing else. The same commit always gives the same digest.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

func main() {
	var o options
	flag.StringVar(&o.root, "root", "../..", "directory of the checkout")
	flag.StringVar(&o.layout, "o", "../../bin/image", "directory of the OCI layout, which is replaced")
	flag.StringVar(&o.name, "name", "outboard:dev", "name and tag of the image in the layout")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64", "platforms to build for")
	flag.Parse()
	o.platforms = strings.Split(*platforms, ",")
	var err error
	if o.layout, err = filepath.Abs(o.layout); err != nil {
		fail(err)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	digest, err := write(ctx, o)
	if err != nil {
		fail(err)
	}
	fmt.Printf("%s@%s in %s\n", o.name, digest, o.layout)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "image:", err)
	os.Exit(1)
}

type options struct {
	root      string   // of the checkout
	layout    string   // directory of the result; absolute, because go build runs in root
	name      string   // of the image
	platforms []string // OS/ARCHITECTURE
}

// write builds the binaries and replaces the layout. It returns the digest of the image index.
func write(ctx context.Context, o options) (digest string, err error) {
	parent := filepath.Dir(o.layout)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(parent, "image-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	var binaries []binary
	for _, platform := range o.platforms {
		fmt.Fprintf(os.Stderr, "compiling for %s\n", platform)
		b, err := build(ctx, o.root, platform, filepath.Join(dir, strings.ReplaceAll(platform, "/", "-")))
		if err != nil {
			return "", err
		}
		binaries = append(binaries, b)
	}
	index, err := assemble(binaries)
	if err != nil {
		return "", err
	}
	path, err := layout.Write(filepath.Join(dir, "layout"), emptyIndex())
	if err != nil {
		return "", err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: o.name})); err != nil {
		return "", err
	}
	hash, err := index.Digest()
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(o.layout); err != nil {
		return "", err
	}
	return hash.String(), os.Rename(filepath.Join(dir, "layout"), o.layout)
}
