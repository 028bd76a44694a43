package filewatch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"outboard.dev/outboard/internal/filewatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start watches the paths until the test ends, and returns the reports.
func start(t *testing.T, opts filewatch.Options) (<-chan map[string][]byte, <-chan error) {
	t.Helper()
	changes := make(chan map[string][]byte, 1000)
	errs := make(chan error, 1000)
	opts.OnChange = func(c map[string][]byte) { changes <- c }
	opts.OnError = func(err error) { errs <- err }
	w, err := filewatch.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return changes, errs
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// publish writes files as the kubelet does for a volume: to a new directory, to which it then
// switches the link ..data.
func publish(t *testing.T, dir, version string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		write(t, filepath.Join(dir, version, name), content)
		if _, err := os.Lstat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
			must(t, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
		}
	}
	link := filepath.Join(dir, "..data_tmp")
	must(t, os.Symlink(version, link))
	former, _ := os.Readlink(filepath.Join(dir, "..data"))
	must(t, os.Rename(link, filepath.Join(dir, "..data")))
	if former != "" {
		must(t, os.RemoveAll(filepath.Join(dir, former)))
	}
}

// waitFor returns the first report in which path has the content; reports of intermediate states may come before.
func waitFor(t *testing.T, changes <-chan map[string][]byte, path, content string) map[string][]byte {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case c := <-changes:
			if string(c[path]) == content {
				return c
			}
		case <-timeout:
			t.Fatalf("no report has %q in %s", content, path)
		}
	}
}

func TestChangeIsReported(t *testing.T) {
	tests := []struct {
		name   string
		before func(t *testing.T, dir string) // makes dir/f hold "old"
		change func(t *testing.T, dir string) // makes it hold "new"
	}{{
		name:   "written in place",
		change: func(t *testing.T, dir string) { write(t, filepath.Join(dir, "f"), "new") },
	}, {
		name: "renamed over",
		change: func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "f.tmp"), "new")
			must(t, os.Rename(filepath.Join(dir, "f.tmp"), filepath.Join(dir, "f")))
		},
	}, {
		name: "deleted and created",
		change: func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "f")))
			write(t, filepath.Join(dir, "f"), "new")
		},
	}, {
		name: "volume of a Secret",
		before: func(t *testing.T, dir string) {
			publish(t, dir, "..1", map[string]string{"f": "old"})
		},
		change: func(t *testing.T, dir string) {
			publish(t, dir, "..2", map[string]string{"f": "new"})
		},
	}, {
		name: "target of a link written in place",
		before: func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "archive", "f1"), "old")
			must(t, os.Symlink(filepath.Join("archive", "f1"), filepath.Join(dir, "f")))
		},
		change: func(t *testing.T, dir string) { write(t, filepath.Join(dir, "archive", "f1"), "new") },
	}, {
		name: "an upper directory swapped",
		before: func(t *testing.T, dir string) {
			must(t, os.Symlink(t.TempDir(), filepath.Join(dir, "up")))
			write(t, filepath.Join(dir, "up", "deep", "f"), "old")
			must(t, os.Symlink(filepath.Join("up", "deep", "f"), filepath.Join(dir, "f")))
		},
		change: func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "up2", "deep", "f"), "new")
			must(t, os.Symlink(filepath.Join(dir, "up2"), filepath.Join(dir, "tmp")))
			must(t, os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, "up")))
		},
	}, {
		name: "directory replaced",
		before: func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "f"), "old")
		},
		change: func(t *testing.T, dir string) {
			must(t, os.Rename(dir, dir+".away"))
			write(t, filepath.Join(dir, "f"), "new")
		},
	}}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "watched")
			must(t, os.Mkdir(dir, 0o755))
			path := filepath.Join(dir, "f")
			if tc.before != nil {
				tc.before(t, dir)
			} else {
				write(t, path, "old")
			}
			other := filepath.Join(t.TempDir(), "other")
			write(t, other, "same")
			changes, _ := start(t, filewatch.Options{Paths: []string{path, other}, Interval: time.Millisecond})

			tc.change(t, dir)

			got := waitFor(t, changes, path, "new")
			if string(got[other]) != "same" || len(got) != 2 {
				t.Errorf("the report holds %q, want both files", got)
			}
		})
	}
}

func TestChangeBetweenNewAndRunIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "old")
	ctx, cancel := context.WithCancel(t.Context())
	var got map[string][]byte
	w, err := filewatch.New(filewatch.Options{
		Paths: []string{path}, Interval: time.Hour,
		OnChange: func(c map[string][]byte) { got = c; cancel() },
	})
	must(t, err)
	if old := w.Contents()[path]; string(old) != "old" {
		t.Fatalf("Contents() = %q after New, want %q", old, "old")
	}
	write(t, path, "new")
	w.Run(ctx)
	if string(got[path]) != "new" || !bytes.Equal(w.Contents()[path], got[path]) {
		t.Errorf("the report has %q, Contents() = %q, want %q", got[path], w.Contents()[path], "new")
	}
}

func TestSameBytesAreNoChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "1")
	changes, errs := start(t, filewatch.Options{Paths: []string{path, path}, Interval: time.Millisecond})
	for range 20 {
		replacement := path + ".tmp"
		write(t, replacement, "1")
		must(t, os.Rename(replacement, path))
	}
	replacement := path + ".tmp"
	write(t, replacement, "2")
	must(t, os.Rename(replacement, path))
	if c := <-changes; string(c[path]) != "2" {
		t.Errorf("the first report is %q, want only the change of bytes", c[path])
	}
	select {
	case err := <-errs:
		t.Errorf("unexpected error: %v", err)
	default:
	}
}

func TestUnreadableFileKeepsTheFormerContents(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, path string)
		want  string
	}{
		{"deleted", func(t *testing.T, path string) { must(t, os.Remove(path)) }, "no such file"},
		{"too large", func(t *testing.T, path string) {
			write(t, path+".tmp", strings.Repeat("x", 101))
			must(t, os.Rename(path+".tmp", path))
		}, "larger than 100 bytes"},
		{"a directory", func(t *testing.T, path string) {
			must(t, os.Remove(path))
			must(t, os.Mkdir(path, 0o755))
		}, "not a regular file"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path, other := filepath.Join(dir, "f"), filepath.Join(dir, "other")
			write(t, path, "good")
			write(t, other, "1")
			changes, errs := start(t, filewatch.Options{
				Paths: []string{path, other}, Interval: time.Millisecond, MaxFileBytes: 100,
			})
			tc.spoil(t, path)
			for !strings.Contains((<-errs).Error(), tc.want) {
				// The first of two steps can cause a report.
			}
			write(t, other, "2") // no report, because one file of the set is unreadable
			must(t, os.RemoveAll(path))
			write(t, path+".tmp", "again")
			must(t, os.Rename(path+".tmp", path))

			got := <-changes
			if string(got[path]) != "again" || string(got[other]) != "2" {
				t.Errorf("the first report is %q, want the whole set after it is readable again", got)
			}
		})
	}
}

func TestErrorIsReportedOncePerChange(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	write(t, path, "1")
	changes, errs := start(t, filewatch.Options{Paths: []string{path}, Interval: time.Millisecond})
	for round := range 3 {
		must(t, os.Remove(path))
		if err := <-errs; !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the report is %v, want fs.ErrNotExist", err)
		}
		write(t, path+".tmp", fmt.Sprint("round ", round))
		must(t, os.Rename(path+".tmp", path))
		<-changes
		if len(errs) != 0 {
			t.Fatalf("a second report has the same error: %v", <-errs)
		}
	}
}

// A report never mixes two versions of a set that is replaced as a whole, such as a certificate
// with the key of another.
func TestSetIsReadTogether(t *testing.T) {
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")}
	files := func(content string) map[string]string {
		return map[string]string{"a": content, "b": content, "c": content}
	}
	publish(t, dir, "..0", files("0"))
	changes, _ := start(t, filewatch.Options{Paths: paths, Interval: time.Millisecond})
	const last = 300
	for i := 1; i <= last; i++ {
		publish(t, dir, fmt.Sprint("..", i), files(fmt.Sprint(i)))
	}
	for {
		got := <-changes
		for path, content := range maps.All(got) {
			if !bytes.Equal(content, got[paths[0]]) {
				t.Fatalf("%s has %q while %s has %q", path, content, paths[0], got[paths[0]])
			}
		}
		if string(got[paths[0]]) == fmt.Sprint(last) {
			return
		}
	}
}

func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	write(t, large, strings.Repeat("x", 11))
	for _, tc := range []struct {
		name  string
		paths []string
		want  string
	}{
		{"no path", nil, "no path given"},
		{"missing file", []string{filepath.Join(dir, "missing")}, "missing"},
		{"large file", []string{large}, "larger than 10 bytes"},
		{"directory", []string{dir}, "not a regular file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := filewatch.New(filewatch.Options{Paths: tc.paths, MaxFileBytes: 10})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("New() error = %v, want one with %q", err, tc.want)
			}
		})
	}
}
