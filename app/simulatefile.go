package app

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

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

// readNamed reads a file; an error names it.
func readNamed(name string) (*simulate.File, error) {
	f, err := readFile(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// missingClaims describes which claims and templates of the pods are in no file, and so why these
// pods fit on no node.
func missingClaims(devices *simulate.Devices, jobs []simulate.Job) (notes []string) {
	pods := map[string]int{}
	for _, j := range jobs {
		for _, object := range devices.Missing(j.Pod) {
			pods[object]++
		}
	}
	for _, object := range slices.Sorted(maps.Keys(pods)) {
		fit := "1 pod fits"
		if n := pods[object]; n > 1 {
			fit = fmt.Sprintf("%d pods fit", n)
		}
		notes = append(notes, fmt.Sprintf("there is no %s in the files, so %s on no node: with kubectl, get %s as well", object, fit, deviceKinds))
	}
	return notes
}

// deviceKinds are what simulate reads of Dynamic Resource Allocation, for kubectl get.
const deviceKinds = "resourceslices,deviceclasses,resourceclaims,resourceclaimtemplates,devicetaintrules"
