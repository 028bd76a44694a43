package main

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// results are the mutants that were killed, one on each line of a file: the state of code and tests, the name, and what failed. Survivors are
// not kept: the next run runs them again.
type results struct {
	file  *os.File
	known map[string]result // by the name of the mutant: the latest
}

type result struct{ state, killer string }

func openResults(name string) (*results, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	r := &results{file, map[string]result{}}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if fields := strings.Split(lines.Text(), "\t"); len(fields) == 3 {
			r.known[fields[1]] = result{fields[0], fields[2]}
		}
	}
	return r, lines.Err()
}

func (r *results) killed(name, state string) bool { return r.known[name].state == state }

// killerOf returns the test that has killed the mutant, maybe with other code; "" if none is known.
func (r *results) killerOf(name string) string {
	test, _, _ := strings.Cut(r.known[name].killer, "/")
	if !strings.HasPrefix(test, "Test") {
		return "" // the time limit, or a panic
	}
	return test
}

func (r *results) add(name, state, killer string) error {
	r.known[name] = result{state, killer}
	_, err := fmt.Fprintf(r.file, "%s\t%s\t%s\n", state, name, killer)
	return err
}

// stateOf returns a hash of all files in the folders.
func stateOf(dirs ...string) (string, error) {
	sum := sha256.New()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.Contains(name, "testdata/rapid/") {
				return err
			}
			data, err := os.ReadFile(name)
			fmt.Fprintf(sum, "%s %d\n%s", name, len(data), data)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8]), nil
}

const acceptedFile = "testdata/accepted.txt"

// readAccepted reads the mutants that may survive: the name of each on a line, and the reason on the next one, which is indented. Lines that
// begin with # are comments.
func readAccepted(name string) (map[string]string, error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	accepted, last := map[string]string{}, ""
	for number, line := range strings.Split(string(data), "\n") {
		switch reason, indented := strings.CutPrefix(line, "    "); {
		case line == "" || line[0] == '#':
		case !indented:
			last = line
			accepted[last] = ""
		case last == "" || accepted[last] != "":
			return nil, fmt.Errorf("%s:%d: a reason without a mutant", name, number+1)
		default:
			accepted[last] = reason
		}
	}
	return accepted, nil
}
