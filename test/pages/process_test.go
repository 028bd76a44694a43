package pages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/app"
	"outboard.dev/outboard/internal/config"
)

// The unit and the static pod in docs/as-a-process.md start commands that outboard has, and leave them the time to stop.
// systemd-analyze verifies the unit where it is installed.
func TestServices(t *testing.T) {
	const page, begin = "as-a-process.md", "cat > outboard.service <<'END'\n"
	units, pods := blocksWith(t, page, begin), blocksWith(t, page, "hostPath")
	if len(units) != 1 || len(pods) != 1 {
		t.Fatalf("%s has %d units and %d static pods, want one of each", page, len(units), len(pods))
	}
	stop := config.Default().Serving.ShutdownDelay + 20*time.Second
	_, unit, _ := strings.Cut(units[0], begin)
	unit, _, _ = strings.Cut(unit, "END\n")
	checkUnit(t, unit, stop)
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(pods[0]), &pod); err != nil {
		t.Fatal(err)
	}
	checkStaticPod(t, pod, stop)
}

func checkUnit(t *testing.T, unit string, stop time.Duration) {
	t.Helper()
	settings := map[string]string{}
	section := ""
	for line := range strings.Lines(unit) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		case ok:
			settings[section+"."+key] = value
		case line != "":
			t.Errorf("the unit has the line %q", line)
		}
	}
	checkCommand(t, strings.Fields(settings["Service.ExecStart"]))
	if timeout, err := time.ParseDuration(settings["Service.TimeoutStopSec"] + "s"); err != nil || timeout <= stop {
		t.Errorf("TimeoutStopSec is %v (%v), and Outboard may take %v to stop", timeout, err, stop)
	}
	if settings["Install.WantedBy"] == "" {
		t.Error("the unit cannot be enabled")
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "outboard.service")
	unit = strings.Replace(unit, "/usr/local/bin/outboard", self, 1) // it must exist
	if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "verify", "--man=no", file).CombinedOutput()
	if err != nil || strings.Contains(string(out), "outboard.service") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

func checkStaticPod(t *testing.T, pod corev1.Pod, stop time.Duration) {
	t.Helper()
	for _, v := range pod.Spec.Volumes {
		if v.HostPath == nil {
			t.Errorf("the volume %s refers to another object, so the kubelet does not start the pod", v.Name)
		}
	}
	c := pod.Spec.Containers[0]
	if pod.Spec.ServiceAccountName != "" || len(pod.Spec.Containers) != 1 || len(c.Env)+len(c.EnvFrom) > 0 {
		t.Errorf("the pod refers to other objects, or has not one container: %+v", pod.Spec)
	}
	checkCommand(t, c.Command)
	if ready, alive := c.ReadinessProbe.HTTPGet, c.LivenessProbe.HTTPGet; !pod.Spec.HostNetwork ||
		ready.Host != "127.0.0.1" || ready.Path != "/readyz" || alive.Host != ready.Host ||
		alive.Port != ready.Port || alive.Path != "/healthz" {
		t.Errorf("the kubelet cannot probe the loopback address: %v, %v", ready, alive)
	}
	if grace := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second; grace <= stop {
		t.Errorf("terminationGracePeriodSeconds is %v, and Outboard may take %v to stop", grace, stop)
	}
}

// checkCommand fails if outboard does not accept the command and its flags.
func checkCommand(t *testing.T, command []string) {
	t.Helper()
	if len(command) < 2 || filepath.Base(command[0]) != "outboard" {
		t.Fatalf("%q is no command of outboard", command)
	}
	cmd, rest, err := app.NewCommand().Find(command[1:])
	if err != nil || cmd.Name() != "serve" {
		t.Fatalf("%q: %v", command, err)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Errorf("%q: %v", command, err)
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		t.Errorf("%q: %v", command, err)
	}
}
