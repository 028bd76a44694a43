package project

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// large are the tracked files that may exceed maxFile, each with why it is here.
var large = map[string]string{}

const maxFile = 1 << 20 // bytes

// A clone holds sources and listed data only: no binaries and no build output. It has no Dockerfile: make image writes the image, whose
// bytes are the same each time, and needs no container runtime.
func TestTrackedFilesAreSmall(t *testing.T) {
	dir := root(t)
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		t.Fatalf("listing the tracked files: %v", err)
	}
	names := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if len(names) < 100 {
		t.Fatalf("git tracks %d files", len(names))
	}
	for _, name := range names {
		if base := filepath.Base(name); strings.Contains(base, "Dockerfile") || strings.Contains(base, "Containerfile") {
			t.Errorf("%s is a second way to write the image", name)
		}
		checkTracked(t, dir, name)
	}
}

func checkTracked(t *testing.T, dir, name string) {
	file, err := os.Open(filepath.Join(dir, name))
	if os.IsNotExist(err) {
		return // deleted, not committed yet
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if why := large[name]; info.Size() > maxFile && why == "" {
		t.Errorf("%s has %d bytes, more than %d", name, info.Size(), maxFile)
	}
	start := make([]byte, 4)
	if _, err := io.ReadFull(file, start); err == nil && (bytes.Equal(start, []byte("\x7fELF")) || bytes.HasPrefix(start, []byte("!<ar"))) {
		t.Errorf("%s is a binary", name)
	}
}
