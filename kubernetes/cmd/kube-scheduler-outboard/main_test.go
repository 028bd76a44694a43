package main

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// TestMain is the program if a test runs its own binary.
func TestMain(m *testing.M) {
	if os.Getenv("OUTBOARD_SCHEDULER_TEST") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The first line names Outboard's version, and the second that of Kubernetes.
func TestVersion(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program, "--version")
	command.Env = append(os.Environ(), "OUTBOARD_SCHEDULER_TEST=1")
	out, err := command.CombinedOutput()
	if want := regexp.MustCompile(`\AOutboard \S+, commit \S+\nKubernetes v\S+\n\z`); err != nil || !want.Match(out) {
		t.Errorf("%v, printed\n%s\nwant %s", err, out, want)
	}
}
