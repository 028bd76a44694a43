package doctor_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/wiring/doctor"
)

// The configurations of kube-scheduler in the repository have no findings other than notes, except those whose code a comment in the file or
// the README beside it explains. Those in folders "original" are by other authors.
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
			if entry.IsDir() && (entry.Name() == "original" || entry.Name() == "templates") {
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
			}
			in.FromManifests(outboard)
			findings, err := doctor.Check(in)
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
