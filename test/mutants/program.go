package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// environment is the variable that has the number of the mutant that a test program runs; 0 or unset: none.
const environment = "OUTBOARD_MUTANT"

// switchFile is the file that is added to each mutated package, with the variable that selects the mutant.
const switchFile = "zz_mutant.go"

const switchText = `package %s

import (
	"os"
	"strconv"
)

var theMutant = func() int { n, _ := strconv.Atoi(os.Getenv(%q)); return n }()
`

// skipped selects the tests that count allocations of memory: mutants may allocate.
const skipped = "^TestAllocations$|AllocatesNothing|DoNotAllocate|AllocationsDoNotGrow"

// program is a test program with many mutants, of which a variable of the environment selects one. To compile a program for each would take
// most of the time.
type program struct {
	file, dir string
	flags     []string
	limit     time.Duration // after which a mutant counts as one that does not end
	tests     []string      // as measure has seen them
}

// build compiles the tests in the folder with the changed files.
func (r *runner) build(ctx context.Context, changed map[string][]byte, dir string) (*program, error) {
	replaced := map[string]string{}
	for name, text := range changed {
		original, err := filepath.Abs(name)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(r.work, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return nil, err
		}
		replaced[original] = file
	}
	data, err := json.Marshal(struct{ Replace map[string]string }{replaced})
	if err != nil {
		return nil, err
	}
	overlay := filepath.Join(r.work, "overlay.json")
	if err := os.WriteFile(overlay, data, 0o644); err != nil {
		return nil, err
	}
	r.built++ // there may be two of a folder, with different mutants
	p := &program{file: filepath.Join(r.work, fmt.Sprintf("%s.%d.test", strings.ReplaceAll(dir, "/", "_"), r.built)), dir: dir, limit: 3 * time.Minute}
	compile := exec.CommandContext(ctx, "go", "test", "-vet=off", "-c", "-overlay", overlay, "-o", p.file, "./"+dir)
	if output, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling the tests of %s with mutants: %w\n%s", dir, err, output)
	}
	p.flags = []string{"-test.failfast", "-test.skip", skipped}
	if p.command(ctx, 0, "-test.run", "^$", "-rapid.nofailfile").Run() == nil {
		p.flags = append(p.flags, "-rapid.nofailfile") // later runs would replay it
	}
	return p, nil
}

func (p *program) command(ctx context.Context, number int, flags ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.file, append(slices.Clone(p.flags), flags...)...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), environment+"="+strconv.Itoa(number))
	cmd.WaitDelay = time.Second
	return cmd
}

// run runs the tests that the pattern selects with the mutant, and returns the first that failed; "" if there is none. A mutant that does not
// end, or that ends the program, is killed, too.
func (p *program) run(ctx context.Context, number int, pattern string) (killer string, err error) {
	output, killer, err := p.output(ctx, number, "-test.run", pattern)
	if err == nil && killer == "" && bytes.Contains(output, []byte(noTests)) {
		return "", fmt.Errorf("%s has no test %s", p.dir, pattern)
	}
	return killer, err
}

// noTests is what a test program prints if the pattern selects no test.
const noTests = "testing: warning: no tests to run"

// output is like run, with the flags, and returns what the program has printed as well.
func (p *program) output(ctx context.Context, number int, flags ...string) (output []byte, killer string, err error) {
	limited, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	output, err = p.command(limited, number, flags...).CombinedOutput()
	switch exit := (*exec.ExitError)(nil); {
	case ctx.Err() != nil:
		return nil, "", context.Cause(ctx)
	case limited.Err() != nil:
		return output, "the time limit", nil
	case err == nil:
		return output, "", nil
	case !errors.As(err, &exit):
		return nil, "", err
	}
	return output, failure(output), nil
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// failure returns the first test that failed, by the output.
func failure(output []byte) string {
	if match := failed.FindSubmatch(output); match != nil {
		return string(match[1])
	}
	if i := bytes.Index(output, []byte("panic:")); i >= 0 {
		line, _, _ := bytes.Cut(output[i:], []byte("\n"))
		return string(line)
	}
	return "the end of the program"
}
