package atomicfile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/atomicfile"
)

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := atomicfile.Write(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, path, text string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("%s has %q, want %q: %v", path, got, text, err)
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path, linked := filepath.Join(dir, "file"), filepath.Join(dir, "linked")
	write(t, path, "a long former content", 0o600)
	expect(t, path, "a long former content")
	if err := os.Link(path, linked); err != nil {
		t.Fatal(err)
	}
	write(t, path, "new", 0o640)
	expect(t, path, "new")
	expect(t, linked, "a long former content") // the former file itself is unchanged
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("%v: the mode is %v", err, info.Mode())
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v: the directory has %v", err, entries)
	}
}

// The file that a symbolic link leads to is replaced, also in another directory and by way of other links.
func TestWriteFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(data, "file"), "former", 0o600)
	for name, to := range map[string]string{"second": filepath.Join("data", "file"), "first": "second"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "first"), "new", 0o600)
	expect(t, filepath.Join(data, "file"), "new")
	for _, name := range []string{"first", "second"} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode().Type() != fs.ModeSymlink {
			t.Errorf("%s: %v, the mode is %v", name, err, info.Mode())
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("%v: the directory has %v", err, entries)
	}
}

// A failure names the path that was asked for, and leaves nothing behind.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "directory", "content"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"directory", filepath.Join("missing", "file")} {
		path := filepath.Join(dir, name)
		err := atomicfile.Write(path, []byte("new"), 0o600)
		if want := "write " + path + ": "; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v: the directory has %v", err, entries)
	}
}
