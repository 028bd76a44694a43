//go:build unix

package atomicfile_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"outboard.dev/outboard/internal/atomicfile"
)

// A replaced file keeps its owner and group. Only root can create a file of another user; for others, the file is their own.
func TestWriteKeepsTheOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("former"), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 1234, 2345); err != nil {
			t.Fatal(err)
		}
	}
	before := owner(t, path)
	if err := atomicfile.Write(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if after := owner(t, path); after != before {
		t.Errorf("owner and group are %v, want %v", after, before)
	}
}

func owner(t *testing.T, path string) [2]uint32 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	return [2]uint32{stat.Uid, stat.Gid}
}
