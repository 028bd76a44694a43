// Package atomicfile replaces files in one step: a reader, also after a crash, finds either the
// former content or the new one, each complete.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Write makes data the content of the file at path, with the permissions of mode. The directory
// must exist, the file need not.
//
// It writes a temporary file in the same directory, flushes it to the disk, and renames it over the
// former file. The new file keeps the owner and the group of the former one if the process may set
// them. If path is a symbolic link, Write replaces the file that the link leads to, and the link
// stays. Other hard links to the former file keep the former content. After an error, the file is
// unchanged.
func Write(path string, data []byte, mode fs.FileMode) error {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		target, err = path, nil
	}
	if err == nil {
		err = replace(target, data, mode.Perm())
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// replace is Write for a path that is no symbolic link.
func replace(path string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails after the file is renamed
	if former, err := os.Stat(path); err == nil {
		keepOwner(f, former)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
