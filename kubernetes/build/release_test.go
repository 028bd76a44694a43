package main

import (
	"archive/zip"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// toyRelease has the files of the modules of a release of Kubernetes, by name and version of the module.
var toyRelease = map[string]map[string]string{
	"k8s.io/kubernetes@v1.29.6": {
		"go.mod": "module k8s.io/kubernetes\n\ngo 1.21\n\ngodebug asynctimerchan=1\n\nrequire k8s.io/component-base v0.0.0\n\n" +
			"replace (\n\tk8s.io/component-base => ./staging/src/k8s.io/component-base\n\texample.test/fork => example.test/other v1.0.0\n)\n",
		"cmd/kube-scheduler/main.go": "package main\n\nimport \"k8s.io/component-base/version\"\n\nfunc main() { println(version.Get()) }\n",
	},
	"k8s.io/component-base@v0.29.6": {
		"go.mod":          "module k8s.io/component-base\n\ngo 1.21\n",
		"version/base.go": "package version\n\nvar gitVersion = \"v0.0.0-master\"\n\nfunc Get() string { return gitVersion }\n",
	},
}

// serve makes the modules the only ones that the go command can download.
func serve(t *testing.T, modules map[string]map[string]string) {
	t.Helper()
	proxy, cache := t.TempDir(), t.TempDir()
	t.Cleanup(func() { makeWritable(t, cache) })
	for name, value := range map[string]string{"GOPROXY": "file://" + proxy, "GOSUMDB": "off", "GOMODCACHE": cache, "GOTOOLCHAIN": "local"} {
		t.Setenv(name, value)
	}
	for name, files := range modules {
		path, version, _ := strings.Cut(name, "@")
		dir := filepath.Join(proxy, path, "@v")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for extension, content := range map[string]string{".info": `{"Version":"` + version + `"}`, ".mod": files["go.mod"]} {
			if err := os.WriteFile(filepath.Join(dir, version+extension), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		archive, err := os.Create(filepath.Join(dir, version+".zip"))
		if err != nil {
			t.Fatal(err)
		}
		w := zip.NewWriter(archive)
		for file, content := range files {
			f, err := w.Create(name + "/" + file)
			if err == nil {
				_, err = f.Write([]byte(content))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := archive.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// makeWritable makes a module cache removable: the go command creates directories without the permission to write.
func makeWritable(t *testing.T, dir string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o755)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// A program of another release has the modules, the settings and the version of that release.
func TestReleaseIsBuilt(t *testing.T) {
	t.Chdir(t.TempDir())
	serve(t, toyRelease)
	for range 2 { // the second time, there is a go.mod
		if err := runRelease(t.Context(), "v1.29.6", []string{"kube-scheduler"}); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("./kube-scheduler").CombinedOutput()
	if err != nil || string(out) != "v1.29.6\n" {
		t.Errorf("the program prints %q, %v", out, err)
	}
	goMod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\ngo 1.21\n", "\ngodebug asynctimerchan=1\n", "k8s.io/component-base => k8s.io/component-base v0.29.6\n"} {
		if !strings.Contains(string(goMod), want) {
			t.Errorf("go.mod lacks %q:\n%s", want, goMod)
		}
	}
	if strings.Contains(string(goMod), "example.test") {
		t.Errorf("go.mod replaces a module that is not staged:\n%s", goMod)
	}
}

func TestReleaseThatCannotBeBuilt(t *testing.T) {
	t.Chdir(t.TempDir())
	serve(t, toyRelease)
	for release, want := range map[string]string{"v1.29": "vMAJOR.MINOR.PATCH", "v1.29.7": "k8s.io/kubernetes@v1.29.7"} {
		if err := runRelease(t.Context(), release, []string{"kube-scheduler"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v; want one with %q", release, err, want)
		}
		if _, err := os.Stat("kube-scheduler"); err == nil {
			t.Errorf("%s: there is a program", release)
		}
	}
	if err := runRelease(t.Context(), "v1.29.6", []string{"etcd"}); err == nil || !strings.Contains(err.Error(), "etcd") {
		t.Errorf("error %v; want one that names etcd", err)
	}
}
