package app

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/simulate"
)

// readFile reads manifests, or a table of a trace.
func readFile(name string) (*simulate.File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if filepath.Ext(name) == ".csv" {
		objects, jobs, err := simulate.ReadOpenB(f)
		if err != nil {
			return nil, err
		}
		return &simulate.File{Objects: *objects, Jobs: jobs}, nil
	}
	objects, err := simulate.ReadManifests(f)
	if err != nil {
		return nil, err
	}
	return &simulate.File{Objects: *objects}, nil
}

// readFileOf reads a file, and warns of pods that are not simulated as they are.
func readFileOf(cmd *cobra.Command, name string) (*simulate.File, error) {
	f, err := readFile(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	with := 0
	for _, pod := range f.Pods {
		if len(pod.Spec.ResourceClaims) > 0 {
			with++
		}
	}
	if with > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: ResourceClaims are not simulated: %d of %d pods have some, and are placed as if they had none\n", name, with, len(f.Pods))
	}
	return f, nil
}
