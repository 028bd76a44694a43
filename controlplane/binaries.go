package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const modulePath = "outboard.dev/outboard"

// findBinaries returns the directory with the programs, dir or, if that is "",
// kubernetes/bin of the checkout the working directory is in.
func findBinaries(dir string) (string, error) {
	advice := ""
	if dir == "" {
		root, err := checkout()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, "kubernetes", "bin")
		advice = fmt.Sprintf("; build it with: make -C %s", filepath.Dir(dir))
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-scheduler", "kubectl"} {
		if _, err := os.Stat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%s is not in %s%s", name, dir, advice)
		} else if err != nil {
			return "", err
		}
	}
	return dir, nil
}

// checkout returns the root of this module's source at or above the working directory.
func checkout() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		goMod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.Contains("\n"+string(goMod), "\nmodule "+modulePath+"\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in a checkout of %s: set the directory of etcd, kube-apiserver, kube-scheduler and kubectl", start, modulePath)
		}
	}
}
