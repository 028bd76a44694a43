package doctor_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/wiring"
	"outboard.dev/outboard/internal/wiring/doctor"
)

// The configurations of kube-scheduler in the repository have no findings other than notes, except
// those whose code a comment in the file or the README beside it explains. Those in folders
// "original" are by other authors.
func TestShippedConfigurations(t *testing.T) {
	schedulers := regexp.MustCompile(`(?m)^ *kind: KubeSchedulerConfiguration$`)
	comments := regexp.MustCompile(`(?m)#.*$`)
	root := filepath.Join("..", "..", "..")
	checked := map[string]int{}
	for _, folder := range []string{"examples", "deploy"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() && (entry.Name() == "original" || entry.Name() == "own-policy" || entry.Name() == "templates") {
				return filepath.SkipDir
			}
			if filepath.Ext(path) != ".yaml" {
				return nil
			}
			data, err := os.ReadFile(path)
			if err != nil || !schedulers.Match(data) {
				return err
			}
			checked[folder]++
			in := doctor.Input{File: path, Data: data, Types: types, Now: now}
			beside := filepath.Join(filepath.Dir(path), "outboard.yaml")
			outboard, err := os.ReadFile(beside)
			if err == nil {
				in.ConfigFile = beside
				if in.Config, err = config.ParseManifest(beside, outboard, types); err != nil {
					return err
				}
				if tls := in.Config.Serving.TLS; tls != nil && !slices.Contains(tls.AllowedClients, config.SchedulerClient) {
					t.Errorf("%s does not allow the certificate that outboard setup certs creates", beside)
				}
			}
			findings, _, err := doctor.Check(in)
			if err != nil {
				return err
			}
			readme, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "README.md"))
			explained := strings.Join(comments.FindAllString(string(data), -1), "\n") + string(readme)
			for _, f := range findings {
				if f.Severity != doctor.Note && !strings.Contains(explained, f.Code) {
					t.Errorf("%s", f.Text())
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if checked[folder] < 5 {
			t.Errorf("only %d files in %s", checked[folder], folder)
		}
	}
}

// documented returns the first configuration of Outboard of a page after a heading.
func documented(t *testing.T, page, heading string) *config.Config {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, file, _ := strings.Cut(string(text), heading)
	_, file, _ = strings.Cut(file, "cat > outboard.yaml <<'END'\n")
	file, _, _ = strings.Cut(file, "\nEND\n")
	return parseConfig(t, []byte(file))
}

// The file of the page about the installation, which Helm and kubectl install, has no findings
// except notes.
func TestFileOfTheInstallation(t *testing.T) {
	c := documented(t, "install.md", "### Your own policies")
	w, err := wiring.New(c, wiring.Options{For: wiring.Service, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	in := doctor.Input{File: "scheduler.yaml", Data: w.YAML(), Config: c, ConfigFile: "outboard.yaml", Types: types, Now: now}
	for code, severity := range severities(t, in) {
		if severity != doctor.Note {
			t.Errorf("%s is a %s", code, severity)
		}
	}
}

// Files that Helm installs may serve their own host only: the chart serves them with TLS. With the
// output of setup scheduler for them, they have no errors.
func TestFilesForTheChart(t *testing.T) {
	c := documented(t, "signals.md", "### Documents")
	for _, o := range []wiring.Options{{For: wiring.Service}, {For: wiring.NodePort}, {URL: "https://10.96.0.20"}} {
		w, err := wiring.New(c, o)
		if err != nil {
			t.Fatal(err)
		}
		in := doctor.Input{File: "scheduler.yaml", Data: w.YAML(), Config: c, ConfigFile: "outboard.yaml", Types: types, Now: now}
		if got, want := severities(t, in), doctor.Warning; got["WrongScheme"] != want || got["ServerCertificate"] != "" {
			t.Errorf("%+v: %v, want WrongScheme as a %s", o, got, want)
		}
		for code, severity := range severities(t, in) {
			if severity == doctor.Error {
				t.Errorf("%+v: %s is an error", o, code)
			}
		}
	}
}

func severities(t *testing.T, in doctor.Input) map[string]doctor.Severity {
	t.Helper()
	findings, _, err := doctor.Check(in)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]doctor.Severity{}
	for _, f := range findings {
		all[f.Code] = f.Severity
	}
	return all
}
