package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// refName is the annotation by which tools find an image in a layout.
	refName = "org.opencontainers.image.ref.name"
	// rootsPath is where Go programs look for CA certificates.
	rootsPath = "etc/ssl/certs/ca-certificates.crt"
	// searchPath is the environment in which a manifest can name the program without its path, as
	// those of kube-scheduler do.
	searchPath = "PATH=/usr/local/bin:/"
	sbomPath   = "usr/share/doc/outboard/sbom.spdx.json"
)

// file is a file in a layer or an archive. Its owner is root, and in a layer its time is 1970, so
// that equal content is an equal layer.
type file struct {
	path    string
	mode    int64
	content []byte
}

func emptyIndex() v1.ImageIndex { return mutate.IndexMediaType(empty.Index, types.OCIImageIndex) }

// assemble returns an index with one image for each binary.
func assemble(binaries []binary) (v1.ImageIndex, error) {
	index := emptyIndex()
	for _, b := range binaries {
		img, err := b.image()
		if err != nil {
			return nil, fmt.Errorf("image for %s/%s: %w", b.os, b.arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: b.os, Architecture: b.arch}},
		})
	}
	return index, nil
}

// image has one layer that rarely changes, and one with the binary.
func (b binary) image() (v1.Image, error) {
	sbom, err := b.sbom()
	if err != nil {
		return nil, err
	}
	base, err := layer(file{rootsPath, 0o644, roots()})
	if err != nil {
		return nil, err
	}
	program, err := layer(file{b.path, 0o755, b.content}, file{sbomPath, 0o644, sbom})
	if err != nil {
		return nil, err
	}
	img := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	if img, err = mutate.AppendLayers(img, base, program); err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = b.os, b.arch
	config.Created = v1.Time{Time: b.created()}
	config.Config = v1.Config{User: b.user, Entrypoint: []string{"/" + b.path}, Env: []string{searchPath}, WorkingDir: "/", Labels: map[string]string{
		"org.opencontainers.image.title":    b.name,
		"org.opencontainers.image.version":  b.info.Main.Version,
		"org.opencontainers.image.revision": b.setting("vcs.revision"),
	}}
	return mutate.ConfigFile(img, config)
}

// roots returns the CA certificates of Mozilla as PEM.
func roots() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil { // a file has no place for a constraint
			out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return out.Bytes()
}

// layer returns a layer with the files and their directories.
func layer(files ...file) (v1.Layer, error) {
	content, err := tarred(time.Unix(0, 0), files)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// tarred returns a tar archive with the files and their directories, all modified at this time.
func tarred(modified time.Time, files []file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := map[string]bool{}
	for _, f := range files {
		for i, c := range f.path {
			if dir := f.path[:i]; c == '/' && !made[dir] {
				made[dir] = true
				if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: modified, Format: tar.FormatPAX}); err != nil {
					return nil, err
				}
			}
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: f.mode, Size: int64(len(f.content)), ModTime: modified, Format: tar.FormatPAX}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
