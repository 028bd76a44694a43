package file_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"outboard.dev/outboard/internal/signals/format"
	"outboard.dev/outboard/internal/signals/source/file"
	"outboard.dev/outboard/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var limits = signal.Limits{Values: 10, Bytes: 100}

func open(t *testing.T, path string) *file.Source {
	t.Helper()
	s, err := file.New(file.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, s signal.Source) string {
	t.Helper()
	samples, err := s.Read(t.Context(), limits)
	if err != nil {
		return "error: " + err.Error()
	}
	return fmt.Sprint(samples)
}

// await reads whenever the source reports a change, until it reads the wanted values.
func await(t *testing.T, s interface {
	signal.Source
	signal.Changer
}, want string) {
	t.Helper()
	timeout := time.After(time.Minute)
	for got := ""; ; {
		select {
		case <-s.Changed():
		case <-timeout:
			t.Fatalf("the last reading was %s, want %s", got, want)
		}
		if got = read(t, s); strings.Contains(got, want) {
			return
		}
	}
}

const (
	oneIs1 = "[{n1 1 0001-01-01 00:00:00 +0000 UTC}]"
	oneIs2 = "[{n1 2 0001-01-01 00:00:00 +0000 UTC}]"
)

func TestFileIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "numbers.yaml")
	s := open(t, path)
	if _, err := s.Read(t.Context(), limits); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
	must(t, os.WriteFile(path, []byte("n1: 1"), 0o600))
	await(t, s, oneIs1)
	must(t, os.WriteFile(path+".new", []byte("n1: 2"), 0o600))
	must(t, os.Rename(path+".new", path))
	await(t, s, oneIs2)
	must(t, os.Remove(path))
	await(t, s, "no such file")
	must(t, os.WriteFile(path, []byte("n1: 1"), 0o600))
	await(t, s, oneIs1)
	must(t, os.WriteFile(path, []byte("n1: [1]"), 0o600))
	await(t, s, `error: file `+path+`: "n1": a list is not a number`)
}

// TestMountedConfigMap: the kubelet replaces a link above the file.
func TestMountedConfigMap(t *testing.T) {
	dir := t.TempDir()
	for version, text := range map[string]string{"..1": "n1: 1", "..2": "n1: 2"} {
		must(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, version, "numbers.yaml"), []byte(text), 0o600))
	}
	must(t, os.Symlink("..1", filepath.Join(dir, "..data")))
	must(t, os.Symlink("..data/numbers.yaml", filepath.Join(dir, "numbers.yaml")))
	s := open(t, filepath.Join(dir, "numbers.yaml"))
	if got := read(t, s); got != oneIs1 {
		t.Errorf("at first %s", got)
	}
	must(t, os.Symlink("..2", filepath.Join(dir, "..tmp")))
	must(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
	await(t, s, oneIs2)
}

func TestWhatIsNoFile(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	for _, path := range []string{pipe, t.TempDir(), "/dev/zero"} {
		if got := read(t, open(t, path)); !strings.Contains(got, path+": not a regular file") {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestLimits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "long")
	must(t, os.WriteFile(path, []byte("n1: 1"+strings.Repeat(" ", 100)), 0o600))
	if _, err := open(t, path).Read(context.Background(), limits); !errors.Is(err, signal.ErrTooLong) {
		t.Errorf("a long file: %v", err)
	}
	var many strings.Builder
	for i := range 11 {
		fmt.Fprintf(&many, "n%d: 1\n", i)
	}
	must(t, os.WriteFile(path, []byte(many.String()), 0o600))
	if _, err := open(t, path).Read(context.Background(), limits); !errors.Is(err, signal.ErrTooMany) {
		t.Errorf("many values: %v", err)
	}
}

func TestWrongPath(t *testing.T) {
	_, err := file.New(file.Config{Path: "x", Document: format.Document{Value: "load"}})
	if err == nil || !strings.Contains(err.Error(), `value: Invalid value: "load": must be one path in braces`) {
		t.Errorf("a path without braces: %v", err)
	}
}
