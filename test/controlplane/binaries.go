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

// findBinaries returns the directory with the programs, dir or, if that is "", the
// folder bin of the module in this folder of the checkout that the working directory
// is in.
func findBinaries(dir, module string, programs ...string) (string, error) {
	advice := ""
	if dir == "" {
		root, err := checkout()
		if err != nil {
			return "", fmt.Errorf("%w: set BinDir to the directory of %s", err, strings.Join(programs, ", "))
		}
		dir = filepath.Join(root, module, "bin")
		advice = fmt.Sprintf("; build it with: make -C %s", filepath.Dir(dir))
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for _, name := range programs {
		if _, err := os.Stat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%s is not in %s%s", name, dir, advice)
		} else if err != nil {
			return "", err
		}
	}
	return dir, nil
}

// SchedulerPath returns the kube-scheduler in the directory of the other programs or, because
// envtest's has none, in the checkout.
func (cp *ControlPlane) SchedulerPath() (string, error) {
	const program = "kube-scheduler"
	for _, from := range []string{cp.binDir, ""} {
		if found, err := findBinaries(from, "kubernetes", program); err == nil {
			return filepath.Join(found, program), nil
		}
	}
	return "", fmt.Errorf("%s is not in %s: build it in the checkout with make -C kubernetes bin/%s, or set SchedulerOptions.Path", program, cp.binDir, program)
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
			return "", fmt.Errorf("%s is not in a checkout of %s", start, modulePath)
		}
	}
}
