package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// Each archive in testdata/check has a configuration file, the former one if check is to compare them, and what check prints with its
// exit status. Run with -update to write what is now.
func TestCheckFiles(t *testing.T) {
	names, err := filepath.Glob("testdata/check/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := &txtar.Archive{Comment: archive.Comment}
			dir := t.TempDir()
			args := []string{"check", filepath.Join(dir, "outboard.yaml")}
			for _, f := range archive.Files {
				if f.Name == "out" {
					continue
				}
				got.Files = append(got.Files, f)
				if f.Name == "running.yaml" {
					args = append(args, "--against", filepath.Join(dir, f.Name))
				}
				if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := execute(t, args...)
			if err != nil && !errors.Is(err, errFindings) {
				out += err.Error() + "\n"
			}
			out = strings.ReplaceAll(out, dir+"/", "") + "exit status " + string(rune('0'+exitStatus(err))) + "\n"
			got.Files = append(got.Files, txtar.File{Name: "out", Data: []byte(out)})
			if *update {
				if err := os.WriteFile(name, txtar.Format(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(txtar.Format(archive)), string(txtar.Format(got))); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
		})
	}
}
