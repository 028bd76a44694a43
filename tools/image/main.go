// Command image writes the container image of Outboard for several platforms as an OCI layout,
// without a container runtime. The image has the static binary, the CA certificates of Mozilla, and
// a list of the Go modules in the binary (SBOM), and nothing else. The same commit always gives the
// same digest. With -scheduler, the binary is kube-scheduler with Outboard as a plugin. With
// -release, the command writes all files of a release.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

func main() {
	var r release
	flag.StringVar(&r.root, "root", "../..", "directory of the checkout")
	flag.StringVar(&r.output, "o", "../../bin/image", "directory of the result, which is replaced")
	flag.StringVar(&r.imageName, "name", "outboard:dev", "name and tag of the image in the layout")
	flag.StringVar(&r.version, "release", "", "write all files of the release with this tag, not only the image")
	flag.StringVar(&r.downloads, "downloads", "https://outboard.dev/releases", "with -release: the URL below which the files are published, in a folder for each version")
	flag.StringVar(&r.registry, "registry", "", "with -release: the address below which the image is published, such as registry.example/team")
	platforms := flag.String("platforms", "", "platforms to build for (default: "+imaged+", with -release "+released+")")
	withPlugin := flag.Bool("scheduler", false, "write the image of kube-scheduler with Outboard as a plugin, not that of Outboard")
	flag.Parse()
	if r.program = outboard; *withPlugin {
		r.program = scheduler
	}
	r.platforms = strings.Split(cmp.Or(*platforms, map[bool]string{true: imaged, false: released}[r.version == ""]), ",")
	var err error
	if *withPlugin && r.version != "" {
		fail(errors.New("-scheduler and -release exclude each other"))
	}
	if r.output, err = filepath.Abs(r.output); err != nil {
		fail(err)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if r.version != "" {
		if err := r.write(ctx); err != nil {
			fail(err)
		}
		fmt.Printf("release %s in %s\n", r.version, r.output)
		return
	}
	digest, err := write(ctx, r.options)
	if err != nil {
		fail(err)
	}
	fmt.Printf("%s@%s in %s\n", r.imageName, digest, r.output)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "image:", err)
	os.Exit(1)
}

// imaged are the platforms of the image.
const imaged = "linux/amd64,linux/arm64"

type options struct {
	program   program
	root      string   // of the checkout
	output    string   // directory of the result; absolute, because go build runs in root
	imageName string   // with its tag
	platforms []string // OS/ARCHITECTURE
}

// write builds the binaries and replaces the layout. It returns the digest of the image index.
func write(ctx context.Context, o options) (digest string, err error) {
	err = replace(o.output, func(dir string) error {
		binaries, err := o.compile(ctx, dir, "")
		if err != nil {
			return err
		}
		digest, err = writeLayout(filepath.Join(dir, result), o.imageName, binaries)
		return err
	})
	return digest, err
}

// compile builds the binaries in folders of the directory.
func (o options) compile(ctx context.Context, dir string, version string) (binaries []binary, _ error) {
	for _, platform := range o.platforms {
		fmt.Fprintf(os.Stderr, "compiling %s for %s\n", o.program.name, platform)
		b, err := o.program.build(ctx, o.root, platform, filepath.Join(dir, strings.ReplaceAll(platform, "/", "-")))
		if err != nil {
			return nil, err
		}
		if got := b.info.Main.Version; version != "" && got != version { // before the other platforms, which take minutes
			return nil, fmt.Errorf("the checkout is %s, not %s: tag the commit with git tag %[2]s, and release from a clone without changes", got, version)
		}
		binaries = append(binaries, b)
	}
	return binaries, nil
}

// result is what replace puts in the place of the output, in the directory that it makes.
const result = "result"

// replace makes a directory with an empty directory result in it, and puts the latter in the place
// of output if fill succeeds.
func replace(output string, fill func(dir string) error) error {
	parent := filepath.Dir(output)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(parent, filepath.Base(output)+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Mkdir(filepath.Join(dir, result), 0o755); err != nil {
		return err
	}
	if err := fill(dir); err != nil {
		return err
	}
	if err := os.RemoveAll(output); err != nil {
		return err
	}
	return os.Rename(filepath.Join(dir, result), output)
}

// writeLayout writes an OCI layout with an image of the binaries, and returns the digest of the
// image index.
func writeLayout(dir, name string, binaries []binary) (digest string, err error) {
	index, err := assemble(binaries)
	if err != nil {
		return "", err
	}
	path, err := layout.Write(dir, emptyIndex())
	if err != nil {
		return "", err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: name})); err != nil {
		return "", err
	}
	hash, err := index.Digest()
	return hash.String(), err
}
