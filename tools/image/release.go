package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"
)

// released are the platforms that a release has archives for.
const released = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

// release is what a release is made from.
type release struct {
	options
	version   string // as the go command stamps it into the binaries: the tag of the commit
	downloads string // the URL below which the files of the release are published
	registry  string // the address below which the image is pushed; "": nodes have the image
}

// write replaces the directory with all files of the release. Two releases of a commit by the same
// version of Go have the same bytes.
func (r release) write(ctx context.Context) error {
	return replace(r.output, func(dir string) error {
		binaries, err := r.compile(ctx, dir, r.version)
		if err != nil {
			return err
		}
		files, err := r.files(binaries)
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(dir, result, f.path), f.content, 0o644); err != nil {
				return err
			}
		}
		return nil
	})
}

// files returns the files of the release, with their checksums in the last one.
func (r release) files(binaries []binary) ([]file, error) {
	var files, plugins []file
	for _, b := range binaries {
		archive, err := r.archive(b)
		if err != nil {
			return nil, err
		}
		sbom, err := b.sbom()
		if err != nil {
			return nil, err
		}
		plugins = append(plugins, archive)
		files = append(files, archive, file{path: r.name(b, ".spdx.json"), content: sbom})
	}
	image, reference, err := r.image(binaries)
	if err != nil {
		return nil, err
	}
	chart, err := r.chart(binaries[0].created(), reference)
	if err != nil {
		return nil, err
	}
	manifests, err := r.manifests(binaries[0].created(), reference)
	if err != nil {
		return nil, err
	}
	manifest, err := r.krew(binaries, plugins)
	if err != nil {
		return nil, err
	}
	files = append(files, image, chart, manifests, manifest)
	for preset, path := range map[string]string{"gpu-sharing": "quickstart.yaml", "placement": "quickstart-placement.yaml"} {
		content, err := r.quickstart(preset, reference)
		if err != nil {
			return nil, err
		}
		files = append(files, file{path: path, content: content})
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	var sums strings.Builder
	for _, f := range files {
		fmt.Fprintf(&sums, "%s  %s\n", f.digest(), f.path)
	}
	return append(files, file{path: "SHA256SUMS", content: []byte(sums.String())}), nil
}

func (f file) digest() string { return fmt.Sprintf("%x", sha256.Sum256(f.content)) }

func (r release) name(b binary, extension string) string {
	return fmt.Sprintf("outboard_%s_%s_%s%s", r.version, b.os, b.arch, extension)
}

// executable is the name of the binary in an archive.
func (b binary) executable() string {
	if b.os == "windows" {
		return "outboard.exe"
	}
	return "outboard"
}

// archive has the binary and its license, in the format that the platform can open without other
// programs.
func (r release) archive(b binary) (file, error) {
	contents := []file{{b.executable(), 0o755, b.content}}
	for _, name := range []string{"LICENSE", "README.md"} {
		content, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return file{}, err
		}
		contents = append(contents, file{name, 0o644, content})
	}
	if b.os == "windows" {
		content, err := zipped(b.created(), contents)
		return file{path: r.name(b, ".zip"), content: content}, err
	}
	content, err := compressed(b.created(), contents)
	return file{path: r.name(b, ".tar.gz"), content: content}, err
}

// image is the OCI layout of the binaries for Linux as one file. The reference is what the chart and
// the manifests name: with a registry, it has the digest, so that nothing else is ever pulled.
func (r release) image(binaries []binary) (_ file, reference string, _ error) {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return file{}, "", err
	}
	defer os.RemoveAll(dir)
	linux := slices.DeleteFunc(slices.Clone(binaries), func(b binary) bool { return b.os != "linux" })
	reference = path.Join(r.registry, "outboard") + ":" + r.version
	digest, err := writeLayout(filepath.Join(dir, "layout"), reference, linux)
	if err != nil {
		return file{}, "", err
	}
	if r.registry != "" {
		reference += "@" + digest
	}
	contents, err := below(filepath.Join(dir, "layout"), "")
	if err != nil {
		return file{}, "", err
	}
	content, err := tarred(binaries[0].created(), contents)
	return file{path: "outboard_" + r.version + "_image.tar", content: content}, reference, err
}

// quickstart is all of an installation in one file, which tools/render makes of the chart.
func (r release) quickstart(preset, reference string) ([]byte, error) {
	repository := path.Join(r.registry, "outboard")
	cmd := exec.Command("go", "run", ".", "-quickstart", preset, "-set", "image.repository="+repository+",image.tag="+reference[len(repository)+1:])
	cmd.Dir = filepath.Join(r.root, "tools", "render")
	cmd.Stderr = os.Stderr
	return cmd.Output()
}

var (
	chartVersion = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion: .*$`)
	// chartImage is the image in values.yaml.
	chartImage = regexp.MustCompile(`(?m)^  repository: outboard\n  tag: ""`)
)

// unreleased is the image in the checkout, which releases replace.
const unreleased = "outboard:dev"

// chart is the chart as a package, whose image is that of the release.
func (r release) chart(created time.Time, reference string) (file, error) {
	version := strings.TrimPrefix(r.version, "v")
	contents, err := below(filepath.Join(r.root, "deploy/chart"), "outboard")
	if err != nil {
		return file{}, err
	}
	repository := path.Join(r.registry, "outboard")
	values := fmt.Sprintf("  repository: %s\n  tag: %q", repository, reference[len(repository)+1:])
	for i, f := range contents {
		switch f.path {
		case "outboard/Chart.yaml":
			text := chartVersion.ReplaceAll(f.content, []byte("version: "+version))
			text = bytes.ReplaceAll(text, []byte(unreleased), []byte(reference))
			contents[i].content = appVersion.ReplaceAll(text, []byte("appVersion: "+r.version))
		case "outboard/values.yaml":
			contents[i].content = chartImage.ReplaceAll(f.content, []byte(values))
		}
	}
	content, err := compressed(created, contents)
	return file{path: "outboard-" + version + ".tgz", content: content}, err
}

// manifests are those of deploy/ and the Ledger CRD, with the image of the release, at the paths
// that the documentation names.
func (r release) manifests(created time.Time, reference string) (file, error) {
	contents, err := below(filepath.Join(r.root, "deploy"), "deploy")
	if err != nil {
		return file{}, err
	}
	contents = slices.DeleteFunc(contents, func(f file) bool {
		dir := path.Dir(f.path)
		return path.Ext(f.path) != ".yaml" || dir != "deploy" && dir != "deploy/chart/crds" && path.Dir(dir) != "deploy/presets"
	})
	for i, f := range contents {
		contents[i].content = bytes.ReplaceAll(f.content, []byte(unreleased), []byte(reference))
	}
	content, err := compressed(created, contents)
	return file{path: "outboard_" + r.version + "_manifests.tar.gz", content: content}, err
}

// plugin is the manifest by which krew installs the program as kubectl-outboard, the plugin of
// kubectl.
var plugin = template.Must(template.New("outboard.yaml").Parse(`apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: outboard
spec:
  version: {{.Version}}
  homepage: https://outboard.dev
  shortDescription: Explain and check pod placement by Outboard
  description: |
    Outboard is a scheduler extender. This plugin says why a pod is pending or
    on its node, shows how pods share GPUs, and checks the configuration of
    kube-scheduler and of Outboard in a running cluster.
  platforms:
{{- range .Platforms}}
  - selector:
      matchLabels:
        os: {{.OS}}
        arch: {{.Arch}}
    uri: {{.URI}}
    sha256: {{.Digest}}
    bin: {{.Bin}}
{{- end}}
`))

// krew returns the manifest of the plugin for the archives, one for each binary.
func (r release) krew(binaries []binary, archives []file) (file, error) {
	type platform struct{ OS, Arch, URI, Digest, Bin string }
	var platforms []platform
	for i, b := range binaries {
		uri := strings.TrimSuffix(r.downloads, "/") + "/" + r.version + "/" + archives[i].path
		platforms = append(platforms, platform{b.os, b.arch, uri, archives[i].digest(), b.executable()})
	}
	var out bytes.Buffer
	err := plugin.Execute(&out, struct {
		Version   string
		Platforms []platform
	}{r.version, platforms})
	return file{path: "outboard.yaml", content: out.Bytes()}, err
}

// below returns the files in the directory and below, with their paths after the prefix.
func below(dir, prefix string) (files []file, _ error) {
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		files = append(files, file{filepath.ToSlash(filepath.Join(prefix, relative)), 0o644, content})
		return err
	})
	return files, err
}

func compressed(modified time.Time, files []file) ([]byte, error) {
	content, err := tarred(modified, files)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

func zipped(modified time.Time, files []file) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.path, Method: zip.Deflate, Modified: modified}
		h.SetMode(fs.FileMode(f.mode))
		entry, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
