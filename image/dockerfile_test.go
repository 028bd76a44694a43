package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The commands of the Dockerfile, run in the directories that it describes, compile the binary of make image, and the last stage has the
// same user and entry point.
func TestDockerfile(t *testing.T) {
	data, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	source, output := t.TempDir(), filepath.Join(t.TempDir(), "outboard")
	last := map[string]string{} // the last value of each instruction
	for line := range strings.Lines(string(data)) {
		instruction, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		last[instruction] = value
		switch {
		case instruction == "COPY" && value == "go.mod go.sum ./":
			for _, name := range []string{"go.mod", "go.sum"} {
				copyFile(t, filepath.Join("..", name), filepath.Join(source, name))
			}
		case instruction == "COPY" && value == ". .":
			source = ".." // the checkout, which has more than the context of the build: the folders in .dockerignore
		case instruction == "RUN":
			cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(value, "/outboard ", output+" "))
			cmd.Dir = source
			cmd.Env = append(os.Environ(), "TARGETOS=linux", "TARGETARCH="+runtime.GOARCH, "GOFLAGS=-mod=readonly", "GOWORK=off")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("RUN %s: %v\n%s", value, err, out)
			}
		}
	}
	want, err := build(t.Context(), "..", "linux/"+runtime.GOARCH, filepath.Join(t.TempDir(), "outboard"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(output); err != nil || !bytes.Equal(got, want.content) {
		t.Errorf("the Dockerfile and make image compile different binaries (%v)", err)
	}
	if last["USER"] != user || last["ENTRYPOINT"] != `["/outboard"]` || last["FROM"] != "scratch" {
		t.Errorf("the last stage is FROM %s, USER %s, ENTRYPOINT %s", last["FROM"], last["USER"], last["ENTRYPOINT"])
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
