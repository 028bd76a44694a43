package main

import (
	"archive/tar"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// written is the index of an image of the program for this machine, from the second of two builds.
func written(t *testing.T, p program) v1.ImageIndex {
	t.Helper()
	var digests []string
	var dir string
	for range 2 {
		dir = filepath.Join(t.TempDir(), "layout")
		digest, err := write(t.Context(), options{program: p, root: "../..", output: dir, imageName: "outboard:test", platforms: []string{"linux/" + runtime.GOARCH}})
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("two builds of the image have the digests %s", digests)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations[refName] != "outboard:test" || manifest.Manifests[0].Digest.String() != digests[1] {
		t.Fatalf("the layout has %+v, want one index with digest %s", manifest.Manifests, digests[1])
	}
	image, err := index.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// unpack writes the files of an image to a directory, and returns their headers by name.
func unpack(t *testing.T, img v1.Image, dir string) map[string]*tar.Header {
	t.Helper()
	content := mutate.Extract(img)
	defer content.Close()
	headers := map[string]*tar.Header{}
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers
		}
		if err != nil {
			t.Fatal(err)
		}
		headers[h.Name] = h
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			data, readErr := io.ReadAll(r)
			err = errors.Join(readErr, os.WriteFile(path, data, h.FileInfo().Mode()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestImage(t *testing.T) {
	for name, test := range map[string]struct {
		program
		user, module string
		command      []string
		prints       string
	}{
		"Outboard": {outboard, "65532:65532", "outboard.dev/outboard", []string{"/outboard", "version"}, "for linux/" + runtime.GOARCH},
		// The command is that of deploy/scheduler.yaml.
		"kube-scheduler with the plugin": {scheduler, "", "outboard.dev/outboard/kubernetes", []string{"kube-scheduler", "--version"}, "\nKubernetes v1."},
	} {
		t.Run(name, func(t *testing.T) {
			index := written(t, test.program)
			if err := validate.Index(index); err != nil {
				t.Error(err)
			}
			manifest, err := index.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			if p := manifest.Manifests[0].Platform; p.OS != "linux" || p.Architecture != runtime.GOARCH {
				t.Errorf("the image is for %s", p)
			}
			img, err := index.Image(manifest.Manifests[0].Digest)
			if err != nil {
				t.Fatal(err)
			}
			config, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if config.Config.User != test.user || !slices.Equal(config.Config.Entrypoint, []string{"/" + test.path}) || config.Architecture != runtime.GOARCH {
				t.Errorf("the configuration is %+v", config)
			}

			root := t.TempDir()
			for name, h := range unpack(t, img, root) {
				if h.Typeflag == tar.TypeDir {
					continue
				}
				if !slices.Contains([]string{test.path, rootsPath, sbomPath}, name) {
					t.Errorf("the image has %s", name)
				}
				if h.Uid != 0 || h.FileInfo().Mode().Perm()&0o022 != 0 {
					t.Errorf("%s belongs to %d with mode %v", name, h.Uid, h.FileInfo().Mode())
				}
			}
			program, err := elf.Open(filepath.Join(root, test.path))
			if err != nil {
				t.Fatal(err)
			}
			defer program.Close()
			if libraries, err := program.ImportedLibraries(); err != nil || len(libraries) > 0 {
				t.Errorf("the binary needs %v, %v", libraries, err)
			}
			checkRoots(t, filepath.Join(root, rootsPath))
			checkSBOM(t, filepath.Join(root, sbomPath), test.module)
			if out := run(t, root, config.Config.Env, test.command); !strings.Contains(out, test.prints) {
				t.Errorf("%s prints\n%s", test.command, out)
			}
		})
	}
}

func checkRoots(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(data) || strings.Count(string(data), "BEGIN CERTIFICATE") < 100 {
		t.Errorf("%d CA certificates", strings.Count(string(data), "BEGIN CERTIFICATE"))
	}
}

func checkSBOM(t *testing.T, path, module string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Packages      []struct{ Name, VersionInfo string }
		Relationships []any
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, p := range d.Packages {
		versions[p.Name] = p.VersionInfo
	}
	if d.Packages[0].Name != module || versions["stdlib"] != strings.TrimPrefix(runtime.Version(), "go") {
		t.Errorf("the SBOM describes %s, with Go %s", d.Packages[0].Name, versions["stdlib"])
	}
	out, err := exec.CommandContext(t.Context(), "go", "-C", "../..", "list", "-m", "-f", "{{.Version}}", "k8s.io/client-go").Output()
	if want := strings.TrimSpace(string(out)); err != nil || versions["k8s.io/client-go"] != want {
		t.Errorf("the SBOM has k8s.io/client-go %q, and go.mod has %q (%v)", versions["k8s.io/client-go"], want, err)
	}
	if len(d.Relationships) != len(d.Packages) {
		t.Errorf("%d packages and %d relationships", len(d.Packages), len(d.Relationships))
	}
}

// run runs a command with only the files of the image, as a user without privileges if the test has the permission, and
// returns what the command prints.
func run(t *testing.T, root string, env, command []string) string {
	t.Helper()
	path := ""
	for dir := range strings.SplitSeq(strings.TrimPrefix(env[0], "PATH="), ":") {
		if file := filepath.Join(dir, command[0]); path == "" && exists(filepath.Join(root, file)) {
			path = file
		}
	}
	if path == "" {
		t.Fatalf("the image has no %s in %s", command[0], env)
	}
	attributes := &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		for dir := root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		attributes = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	} else {
		path = filepath.Join(root, path)
	}
	cmd := &exec.Cmd{Path: path, Args: command, Dir: "/", Env: env, SysProcAttr: attributes}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
