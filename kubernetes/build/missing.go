package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// optional is the program that a folder of ready programs may lack: envtest's do.
const optional = "kube-scheduler"

// missing writes to out which of the outputs must be built because the folder lacks the program: all if folder is "". It writes to
// info what is used and what is built.
func missing(ctx context.Context, out, info io.Writer, folder string, outputs []string) error {
	if folder == "" {
		fmt.Fprintln(out, strings.Join(outputs, " "))
		return nil
	}
	if !filepath.IsAbs(folder) {
		return fmt.Errorf("KUBEBUILDER_ASSETS must be an absolute path: %s", folder)
	}
	var lacks, has []string
	for _, output := range outputs {
		name := filepath.Base(output)
		switch _, err := os.Stat(filepath.Join(folder, name)); {
		case err == nil:
			has = append(has, name)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("KUBEBUILDER_ASSETS: %w", err)
		case name != optional:
			return fmt.Errorf("KUBEBUILDER_ASSETS: %s is not in %s: name a folder with %s, or unset the variable to build them", name, folder, required(outputs))
		default:
			lacks = append(lacks, output)
		}
	}
	if len(lacks) == 0 {
		fmt.Fprintf(info, "using %s in %s\n", strings.Join(has, ", "), folder)
		return nil
	}
	fmt.Fprintf(info, "using %s in %s; %s, which is not there, is built here\n", strings.Join(has, ", "), folder, optional)
	fmt.Fprintln(out, strings.Join(lacks, " "))
	return warnOfSkew(ctx, info, filepath.Join(folder, "kube-apiserver"))
}

func required(outputs []string) string {
	var names []string
	for _, output := range outputs {
		if name := filepath.Base(output); name != optional {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// warnOfSkew warns if the kube-scheduler of the module in the working directory is newer than the API server.
func warnOfSkew(ctx context.Context, info io.Writer, apiServer string) error {
	text, err := exec.CommandContext(ctx, apiServer, "--version").Output() // Kubernetes v1.37.0
	if err != nil {
		return fmt.Errorf("KUBEBUILDER_ASSETS: %s --version: %w", apiServer, err)
	}
	own, err := goOutput(ctx, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	_, version, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	own = strings.TrimSpace(own)
	theirs, err := minor(version)
	if err != nil {
		return fmt.Errorf("KUBEBUILDER_ASSETS: kube-apiserver: %w", err)
	}
	ours, err := minor(own)
	if err != nil {
		return err
	}
	if theirs < ours {
		fmt.Fprintf(info, "warning: kube-apiserver is %s; Kubernetes does not support it with a newer kube-scheduler, which is %s here\n", version, own)
	}
	return nil
}

// minor returns the minor version of v1.MINOR.PATCH.
func minor(version string) (n int, err error) {
	if _, err := fmt.Sscanf(version, "v1.%d.", &n); err != nil {
		return 0, fmt.Errorf("%q is not a version of Kubernetes", version)
	}
	return n, nil
}
