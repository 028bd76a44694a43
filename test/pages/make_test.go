package pages

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"outboard.dev/outboard/test/docs"
)

// withFlags are the documented make targets whose last command is a program with flags that takes too long to run here.
var withFlags = []string{"bench-placement", "compat", "demo-gpu", "image", "release", "scheduler-image"}

// The programs that documented make commands run accept the flags, and make build stamps the commit, whatever GOFLAGS some environments
// set for tests.
func TestMake(t *testing.T) {
	commit := strings.TrimSpace(shell(t, "git rev-parse HEAD"))
	shell(t, "GOFLAGS=-buildvcs=false make build")
	if said := shell(t, "bin/outboard version"); !strings.Contains(said, ", commit "+commit) {
		t.Errorf("bin/outboard version prints %q, and the commit is %s", said, commit)
	}
	var tested []string
	for _, p := range docs.Pages(t) {
		blocks, _ := p.Blocks()
		for _, b := range blocks {
			calls, _ := b.MakeCalls()
			for _, command := range calls {
				if slices.Contains(withFlags, strings.Fields(command)[1]) && !slices.Contains(tested, command) {
					tested = append(tested, command)
					t.Run(command, func(t *testing.T) { acceptsFlags(t, command) })
				}
			}
		}
	}
}

// acceptsFlags builds the program that a make command runs last, and runs it with all flags and -help.
func acceptsFlags(t *testing.T, command string) {
	// With MAKE=true, nothing else runs although make runs lines with $(MAKE) in spite of -n.
	lines := strings.Split(strings.TrimSpace(shell(t, strings.Replace(command, "make", "make -n MAKE=true", 1))), "\n")
	last := len(lines) - 1
	build := slices.DeleteFunc(lines[:last:last], func(line string) bool { return !strings.HasPrefix(line, "go ") })
	if printed := shell(t, strings.Join(append(build, lines[last]+" -help"), "\n")); !strings.Contains(printed, "Usage of ") {
		t.Errorf("%s -help prints\n%s", lines[last], printed)
	}
}

// shell runs commands in the root as in the shell of a user, and returns what they print.
func shell(t *testing.T, commands string) string {
	t.Helper()
	cmd := exec.CommandContext(untilTimeout(t), "bash", "-euc", commands)
	cmd.Dir = docs.Root
	// The variables with which make started this test change what make does.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}, name)
	})
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	return string(out)
}
