package docs

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// notMade are the documented make targets that TestMake does not run, with the reason.
var notMade = map[string]string{
	"test":            "it runs this test",
	"test-all":        "it runs this test",
	"check":           ".ci/run runs it",
	"bench-placement": "takes 40 minutes; a test of bench/placement runs a part of it",
	"demo-gpu":        "takes minutes; a test of bench/gpu runs a part of it",
	"release":         "compiles for six platforms; TestRelease of deploy/image makes a release",
	"scheduler-image": "compiles kube-scheduler for two architectures; TestImage of deploy/image writes the image for one",
	"compat":          "compiles other releases of Kubernetes",
	"cluster":         "runs until Ctrl-C, which TestMake presses",
}

// TestMake runs each documented make command as a reader types it, in a clean clone, and then looks at what the commands have written.
// Images are for this machine only, because another platform takes minutes: make reproduce compiles for all.
func TestMake(t *testing.T) {
	t.Setenv("PLATFORMS", "linux/"+runtime.GOARCH)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	parent := t.TempDir()
	clone := filepath.Join(parent, "outboard")
	cloneTo(t, root, clone)
	commands := makeCommands(t, root)
	for _, command := range commands {
		t.Run(command, func(t *testing.T) { shell(t, clone, command) })
	}
	for _, command := range []string{"make cluster", "make cluster SCHEDULER=examples/from-the-tutorials/course/scheduler.yaml"} {
		t.Run(command, func(t *testing.T) { runsUntilInterrupted(t, clone, command) })
	}

	for _, want := range []string{"make build", "make demo", "make image IMAGE=outboard:dev"} {
		if !slices.Contains(commands, want) {
			t.Errorf("no page has %s, so that this test checks nothing about its result", want)
		}
	}
	commit := strings.TrimSpace(shell(t, clone, "git rev-parse HEAD"))
	checkVersion(t, clone, commit)
	built := shell(t, clone, "GOFLAGS=-buildvcs=false make build") // as some environments set it for tests
	if !strings.Contains(built, "outboard: built in ") {
		t.Errorf("make build does not say how far it is:\n%s", built)
	}
	checkVersion(t, clone, commit)
	var index struct {
		Manifests []struct{ Digest string }
	}
	readJSON(t, filepath.Join(clone, "bin/image/index.json"), &index)
	var image struct {
		Manifests []struct {
			Digest   string
			Platform struct{ OS, Architecture string }
		}
	}
	readJSON(t, blob(clone, index.Manifests[0].Digest), &image)
	var platforms []string
	for _, m := range image.Manifests {
		platforms = append(platforms, m.Platform.OS+"/"+m.Platform.Architecture)
	}
	if !slices.Equal(platforms, []string{"linux/" + runtime.GOARCH}) {
		t.Errorf("the image is for %v", platforms)
	}
	if would := shell(t, clone, "unset PLATFORMS; make --dry-run image"); !strings.Contains(would, "-platforms linux/amd64,linux/arm64") {
		t.Errorf("without PLATFORMS, make image runs\n%s", would)
	}
	manifest := struct{ Config struct{ Digest string } }{}
	readJSON(t, blob(clone, image.Manifests[0].Digest), &manifest)
	config := struct {
		Config struct{ Labels map[string]string }
	}{}
	readJSON(t, blob(clone, manifest.Config.Digest), &config)
	if got := config.Config.Labels["org.opencontainers.image.revision"]; got != commit {
		t.Errorf("the image is of commit %q, want %s", got, commit)
	}
	if changed := shell(t, clone, "git status --porcelain"); changed != "" {
		t.Errorf("git sees what the commands have written:\n%s", changed)
	}
	if beside, err := os.ReadDir(parent); err != nil || len(beside) != 1 {
		t.Errorf("beside the clone are %v (%v)", beside, err)
	}
}

// Every make command that a page has in a sentence names a target that make help explains.
func TestMakeTargetsExist(t *testing.T) {
	root := filepath.Join("..", "..")
	help, found := shell(t, root, "make help"), 0
	for _, page := range pages(t, root) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`make ([a-z][a-z-]*)").FindAllStringSubmatch(string(text), -1) {
			found++
			if !strings.Contains(help, "\nmake "+m[1]+" ") && !strings.HasPrefix(help, "make "+m[1]+" ") {
				t.Errorf("%s has make %s, which make help does not explain", page, m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("pages have %d make commands in sentences", found)
	}
}

// make build builds the command and nothing else, and make demo runs that command. What is documented and takes too long for TestMake
// consists of commands whose programs accept the flags.
func TestRecipes(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// With MAKE=true, nothing else runs although make runs lines with $(MAKE) in spite of -n.
	recipe := func(command string) []string {
		printed := shell(t, root, strings.Replace(command, "make", "make -n MAKE=true", 1))
		return slices.DeleteFunc(strings.Split(strings.TrimSpace(printed), "\n"), func(line string) bool { return strings.HasPrefix(line, "true --") })
	}
	const building = "kubernetes/build outboard"
	if got := recipe("make build"); len(got) != 1 || got[0] != building {
		t.Errorf("make build runs %q", got)
	}
	if got := recipe("make demo"); len(got) != 2 || !strings.HasPrefix(got[0], building+" ") || !strings.HasPrefix(got[1], "bin/demo --outboard bin/outboard") {
		t.Errorf("make demo runs %q", got)
	}
	for _, command := range documented(t, root) {
		target := strings.Fields(command)[1]
		if !slices.Contains([]string{"bench-placement", "demo-gpu", "release", "compat"}, target) {
			continue
		}
		t.Run(command, func(t *testing.T) {
			lines := recipe(command)
			last := strings.Replace(lines[len(lines)-1], "bin/"+target+" ", "go run ./test/"+target+" ", 1)
			last = strings.Replace(last, "bin/bench/", "go -C bench run ./", 1)
			if help := shell(t, root, "CGO_ENABLED=0 "+last+" -help"); !strings.HasPrefix(last, "go ") || !strings.Contains(help, "Usage of ") {
				t.Errorf("%s -help prints\n%s", last, help)
			}
		})
	}
}

// runsUntilInterrupted runs a command that starts a control plane, and presses Ctrl-C when it says how to use it. Then its files are gone.
func runsUntilInterrupted(t *testing.T, dir, command string) {
	t.Helper()
	ctx := untilTimeout(t)
	cmd := inShell(ctx, dir, command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a terminal does: Ctrl-C is for make and what it runs
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kubeconfig := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if path, ok := strings.CutPrefix(lines.Text(), "  export KUBECONFIG="); ok {
			kubeconfig = strings.Trim(path, "'")
		}
		if strings.HasPrefix(lines.Text(), "The logs are in") {
			if _, err := os.Stat(kubeconfig); err != nil {
				t.Error(err)
			}
			if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = cmd.Wait() // make reports the interrupt
	if ctx.Err() != nil || kubeconfig == "" {
		t.Fatalf("%s: %v", command, err)
	}
	if _, err := os.Stat(filepath.Dir(kubeconfig)); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", filepath.Dir(kubeconfig), err)
	}
}

// checkVersion checks what the command says about its version: the clone has no changes.
func checkVersion(t *testing.T, clone, commit string) {
	t.Helper()
	said := shell(t, clone, "bin/outboard version")
	if !strings.Contains(said, commit[:12]+", commit "+commit) {
		t.Errorf("bin/outboard version prints %q, and the commit is %s", said, commit)
	}
}

// blob returns the path of the blob in the image of the clone.
func blob(clone, digest string) string {
	return filepath.Join(clone, "bin/image/blobs", strings.Replace(digest, ":", "/", 1))
}

// makeCommands returns the make commands of all pages that TestMake runs, each once.
func makeCommands(t *testing.T, root string) []string {
	t.Helper()
	return slices.DeleteFunc(documented(t, root), func(command string) bool { return notMade[strings.Fields(command)[1]] != "" })
}

// documented returns the make commands of all pages, each once.
func documented(t *testing.T, root string) []string {
	t.Helper()
	var commands []string
	for _, b := range blocks(t, root) {
		for _, call := range makeCall.FindAllStringSubmatch(b.text, -1) {
			command := "make " + call[1] + call[2]
			if b.language == "sh" && !slices.Contains(commands, command) {
				commands = append(commands, command)
			}
		}
	}
	return commands
}

// cloneTo clones the checkout, with files that are not committed yet, and copies the programs of its control plane.
func cloneTo(t *testing.T, root, clone string) {
	t.Helper()
	shell(t, root, "git clone --quiet . "+clone)
	shell(t, root, "git ls-files -z --modified --others --exclude-standard | while IFS= read -r -d '' file; do "+
		"if [ -e \"$file\" ]; then mkdir -p \"$(dirname \""+clone+"/$file\")\" && cp \"$file\" \""+clone+"/$file\"; else rm -f \""+clone+"/$file\"; fi; done")
	shell(t, clone, "git add --all && { git diff --cached --quiet || git -c user.name=test -c user.email=test commit --quiet --message changes; }")
	for _, programs := range []string{"kubernetes/bin", "test/prometheus/bin"} {
		if err := os.CopyFS(filepath.Join(clone, programs), os.DirFS(filepath.Join(root, programs))); err != nil {
			t.Fatal(err)
		}
	}
}

// shell runs a command as in an interactive shell of a user, and returns what it prints.
func shell(t *testing.T, dir, command string) string {
	t.Helper()
	out, err := inShell(untilTimeout(t), dir, command).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// inShell returns a command of an interactive shell of a user, ready to run.
func inShell(ctx context.Context, dir, command string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir = dir
	// The variables with which make and go test started this test change what make does.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "CGO_ENABLED", "GOFLAGS"}, name)
	})
	return cmd
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}
