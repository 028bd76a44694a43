//go:build unix

package atomicfile

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives the file the owner and the group of the former one. Only root may do that for any
// file: without the permission, the file keeps those of the process.
func keepOwner(f *os.File, former fs.FileInfo) {
	if stat, ok := former.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(stat.Uid), int(stat.Gid))
	}
}
