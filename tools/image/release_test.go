package main

import (
	"archive/zip"
	"bytes"
	"flag"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

var all = flag.Bool("all", false, "TestRelease compiles for all platforms of a release")

const tag = "v0.9.8"

// TestRelease makes two releases of the same commit in clones at different paths, and reads the files with the programs of those who
// download them. Without -all, it compiles for this machine only, and the archive for Windows has that program.
func TestRelease(t *testing.T) {
	first, second := releaseIn(t, filepath.Join(t.TempDir(), "a"), "registry.example/team"), releaseIn(t, filepath.Join(t.TempDir(), "another", "path"), "registry.example/team")
	names := list(t, first)
	if others := list(t, second); !slices.Equal(names, others) {
		t.Fatalf("two releases have the files %q and %q", names, others)
	}
	for _, name := range names {
		if !bytes.Equal(content(t, first, name), content(t, second, name)) {
			t.Errorf("two releases have different %s", name)
		}
	}
	commands(t, first)
	checkArchives(t, first, names)
	checkPlugin(t, first, names)
	layout := tool(t, first, "tar", "-xOf", "outboard_"+tag+"_image.tar", "index.json")
	image := "registry.example/team/outboard:" + tag
	if !strings.Contains(layout, `"`+image+`"`) {
		t.Errorf("the index of the image is %s", layout)
	}
	image += "@" + regexp.MustCompile("sha256:[0-9a-f]{64}").FindString(layout)
	checkChart(t, first, image)
	checkManifests(t, first, image)
	for _, name := range []string{"quickstart.yaml", "quickstart-placement.yaml"} {
		if text := string(content(t, first, name)); strings.Count(text, `image: "`+image+`"`) != 3 || !strings.Contains(text, "kind: CustomResourceDefinition") {
			t.Errorf("%s is\n%s", name, text)
		}
	}
}

// releaseIn makes a release of the checkout in a clone at the path, with the image in the registry.
func releaseIn(t *testing.T, clone, registry string) (dist string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	tool(t, ".", "git", "clone", "--quiet", root, clone)
	// What is not committed yet is part of the release: the test is of the files in the checkout.
	changes := exec.CommandContext(t.Context(), "git", "apply", "--allow-empty", "--binary")
	changes.Dir, changes.Stdin = clone, strings.NewReader(tool(t, root, "git", "diff", "--binary", "HEAD"))
	if out, err := changes.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tool(t, clone, "git", "add", "--all")
	// Both clones have the same commit: its name is a function of its time, too.
	t.Setenv("GIT_AUTHOR_DATE", "2026-05-01T12:00:00Z")
	t.Setenv("GIT_COMMITTER_DATE", "2026-05-01T12:00:00Z")
	tool(t, clone, "git", "-c", "user.name=test", "-c", "user.email=test", "commit", "--quiet", "--allow-empty", "--message", "release")
	tool(t, clone, "git", "tag", tag)

	r := release{version: tag, downloads: "https://downloads.example", registry: registry, options: options{program: outboard, root: clone, output: filepath.Join(clone, "dist"), platforms: strings.Split(released, ",")}}
	if *all {
		if err := r.write(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r.output
	}
	r.platforms = []string{"linux/" + runtime.GOARCH}
	built := t.TempDir()
	binaries, err := r.compile(t.Context(), built, tag)
	if err != nil {
		t.Fatal(err)
	}
	windows := binaries[0]
	windows.os = "windows"
	files, err := r.files(append(binaries, windows))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(r.output, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(r.output, f.path), f.content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// The program that is there is up to date, and is not linked again.
	if _, err := r.compile(t.Context(), built, "v0.9.9"); err == nil || !strings.Contains(err.Error(), "the checkout is "+tag+", not v0.9.9: tag the commit with git tag v0.9.9") {
		t.Errorf("a release with another version than the tag: %v", err)
	}
	return r.output
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func content(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// tool runs a program in the directory, and returns what it prints.
func tool(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s%s", args, err, out, &stderr)
	}
	return string(out)
}

// documented are the commands of docs/upgrading.md by which a user checks a download.
var documented = regexp.MustCompile("(?s)## Check a download\n.*?```sh\n(.*?)```")

// commands runs the documented commands in the directory, as a user who has downloaded the files.
func commands(t *testing.T, dist string) {
	t.Helper()
	page := content(t, "../../docs", "upgrading.md")
	text := documented.FindSubmatch(page)
	if text == nil {
		t.Fatal("docs/upgrading.md has no commands by which a user checks a download")
	}
	script := strings.NewReplacer("v0.1.0", tag, "amd64", runtime.GOARCH).Replace(string(text[1]))
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(dist)); err != nil {
		t.Fatal(err)
	}
	out := tool(t, dir, "bash", "-euo", "pipefail", "-c", script)
	commit := strings.TrimSpace(tool(t, dist, "git", "rev-parse", "HEAD"))
	for _, want := range []string{
		"outboard_" + tag + "_linux_" + runtime.GOARCH + ".tar.gz: OK\n", "vcs.revision=" + commit, "vcs.modified=false", "outboard " + tag + ", commit " + commit,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the documented commands do not print %q:\n%s", want, out)
		}
	}
}

// checkArchives reads each archive with the program that its users have.
func checkArchives(t *testing.T, dist string, names []string) {
	t.Helper()
	tool(t, dist, "sha256sum", "--check", "--strict", "SHA256SUMS")
	if sums := strings.Count(string(content(t, dist, "SHA256SUMS")), "\n"); sums != len(names)-1 {
		t.Errorf("%d checksums of %d files", sums, len(names)-1)
	}
	archives := 0
	for _, name := range names {
		var got string
		switch {
		case strings.HasSuffix(name, "_manifests.tar.gz"), strings.HasSuffix(name, ".tgz"):
			continue
		case strings.HasSuffix(name, ".tar.gz"):
			got = tool(t, dist, "tar", "--numeric-owner", "-tzvf", name)
			got = regexp.MustCompile(`(?m)^(\S+) (\S+) .* (\S+)$`).ReplaceAllString(got, "$1 $2 $3")
			if want := "-rwxr-xr-x 0/0 outboard\n-rw-r--r-- 0/0 LICENSE\n-rw-r--r-- 0/0 README.md\n"; got != want {
				t.Errorf("%s has\n%s", name, got)
			}
		case strings.HasSuffix(name, ".zip"):
			got = unzipped(t, filepath.Join(dist, name))
			if *all { // by a program that shares no code with the one that wrote the archive
				if theirs := tool(t, dist, "python3", "-c", "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; print(*z.namelist())", name); theirs != got {
					t.Errorf("%s has %s by Python, and %s by Go", name, theirs, got)
				}
			}
			if got != "outboard.exe LICENSE README.md\n" {
				t.Errorf("%s has %s", name, got)
			}
		default:
			continue
		}
		archives++
	}
	want := 2
	if *all {
		want = strings.Count(released, ",") + 1
	}
	if archives != want {
		t.Errorf("%d archives, want %d: %q", archives, want, names)
	}
}

// The fields of a manifest that krew requires, and those that its developer guide recommends (https://krew.sigs.k8s.io/docs/developer-guide).
type krewPlugin struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		Version, Homepage, Description string
		ShortDescription               string `yaml:"shortDescription"`
		Platforms                      []struct {
			Selector struct {
				MatchLabels map[string]string `yaml:"matchLabels"`
			}
			URI, SHA256, Bin string
		}
	}
}

// checkPlugin checks the manifest of the plugin by krew's rules, and that each archive that it names has the checksum and the program.
func checkPlugin(t *testing.T, dist string, names []string) {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(content(t, dist, "outboard.yaml")))
	decoder.KnownFields(true)
	var p krewPlugin
	if err := decoder.Decode(&p); err != nil {
		t.Fatal(err)
	}
	if p.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || p.Kind != "Plugin" || p.Metadata.Name != "outboard" || p.Spec.Version != tag {
		t.Errorf("the manifest is of %s %s %s %s", p.APIVersion, p.Kind, p.Metadata.Name, p.Spec.Version)
	}
	if s := p.Spec.ShortDescription; s == "" || len(s) > 50 || strings.ContainsAny(s, "\r\n") {
		t.Errorf("the short description is %q", s)
	}
	if p.Spec.Homepage == "" || p.Spec.Description == "" {
		t.Error("the manifest has no homepage or no description")
	}
	sums := string(content(t, dist, "SHA256SUMS"))
	selected := map[string]bool{}
	for _, platform := range p.Spec.Platforms {
		labels := platform.Selector.MatchLabels
		name := strings.TrimPrefix(platform.URI, "https://downloads.example/"+tag+"/")
		if len(labels) != 2 || !strings.HasPrefix(name, "outboard_"+tag+"_"+labels["os"]+"_"+labels["arch"]+".") || selected[name] {
			t.Errorf("the archive for %v is %s", labels, platform.URI)
		}
		selected[name] = true
		if !slices.Contains(names, name) || !strings.Contains(sums, platform.SHA256+"  "+name+"\n") || len(platform.SHA256) != 64 {
			t.Errorf("the checksum of %s is %s", name, platform.SHA256)
		}
		want := map[string]string{"linux": "outboard", "darwin": "outboard", "windows": "outboard.exe"}[labels["os"]]
		if platform.Bin != want {
			t.Errorf("the program in %s is %q", name, platform.Bin)
		}
	}
	if want := 2; !*all && len(selected) != want || *all && len(selected) != 6 {
		t.Errorf("the manifest has %d platforms", len(selected))
	}
}

// checkChart renders the package with Helm.
func checkChart(t *testing.T, dist, image string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(dist, "outboard-"+strings.TrimPrefix(tag, "v")+".tgz"))
	if err != nil {
		t.Fatal(err)
	}
	helm := func(args ...string) string {
		return tool(t, "../render", append([]string{"go", "tool", "helm.sh/helm/v3/cmd/helm"}, args...)...)
	}
	if chart := helm("show", "chart", path); !strings.Contains(chart, "\nversion: 0.9.8\n") || !strings.Contains("\n"+chart, "\nappVersion: "+tag+"\n") {
		t.Errorf("the chart is\n%s", chart)
	}
	rendered := func(chart string) string {
		return helm("template", "outboard", chart, "--namespace", "outboard-system", "--kube-version", "1.37.0", "--include-crds")
	}
	got := rendered(path)
	if !strings.Contains(got, `image: "`+image+`"`) || !strings.Contains(helm("show", "chart", path), "image: "+image+"\n") {
		t.Error("the chart does not have the image of the release")
	}
	job := regexp.MustCompile(`outboard-certificates-[0-9a-f]{8}`) // another image, another name
	want := job.ReplaceAllString(rendered("../../deploy/chart"), "job")
	if got = job.ReplaceAllString(got, "job"); strings.ReplaceAll(got, image, unreleased) != want {
		t.Errorf("the package renders to\n%s\nand the chart to\n%s", got, want)
	}
}

// checkManifests compares the manifests in the archive with those of the checkout.
func checkManifests(t *testing.T, dist, image string) {
	t.Helper()
	dir := t.TempDir()
	path, err := filepath.Abs(filepath.Join(dist, "outboard_"+tag+"_manifests.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	tool(t, dir, "tar", "-xzf", path)
	want := 1 // the CRD
	for _, pattern := range []string{"../../deploy/*.yaml", "../../deploy/presets/*/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		want += len(files)
	}
	count := 0
	err = filepath.WalkDir(filepath.Join(dir, "deploy"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		count++
		relative, err := filepath.Rel(filepath.Join(dir, "deploy"), name)
		if err != nil {
			return err
		}
		got := strings.ReplaceAll(string(content(t, filepath.Dir(name), d.Name())), image, unreleased)
		if got != string(content(t, "../../deploy", relative)) {
			t.Errorf("the archive has another %s", relative)
		}
		return nil
	})
	if err != nil || count != want {
		t.Errorf("the archive has %d manifests, want %d, those of deploy/ with the presets and the CRD: %v", count, want, err)
	}
	for _, name := range []string{"outboard.yaml", "gpushare-extender.yaml"} {
		if !strings.Contains(string(content(t, filepath.Join(dir, "deploy"), name)), image) {
			t.Errorf("%s does not have the image of the release", name)
		}
	}
}

// unzipped reads all files in the archive, and returns their names.
func unzipped(t *testing.T, path string) string {
	t.Helper()
	archive, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	var names []string
	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil { // compares the checksum
			t.Errorf("%s in %s: %v", f.Name, path, err)
		}
		r.Close()
		names = append(names, f.Name)
	}
	return strings.Join(names, " ") + "\n"
}
