//go:build !unix

package atomicfile

import (
	"io/fs"
	"os"
)

// keepOwner does nothing: files have no owner and group in the sense of Unix.
func keepOwner(*os.File, fs.FileInfo) {}
