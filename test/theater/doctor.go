package theater

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"outboard.dev/outboard/internal/wiring/doctor"
)

// Doctor runs outboard check --scheduler on a file and returns the codes of its findings.
func (th *Theater) Doctor(config string, args ...string) (codes []string) {
	th.T.Helper()
	file := filepath.Join(th.T.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		th.T.Fatal(err)
	}
	// The exit status shows whether there are errors.
	report, _ := exec.CommandContext(th.Ctx, th.Binary(), append([]string{"check", "--scheduler", file, "-o", "json"}, args...)...).Output()
	var found struct{ Findings []doctor.Finding }
	if err := json.Unmarshal(report, &found); err != nil {
		th.T.Fatalf("%v: %s", err, report)
	}
	for _, f := range found.Findings {
		codes = append(codes, f.Code)
	}
	return codes
}

// Diagnosed fails the test unless the doctor finds the code in the wrong file, and not in the right
// one.
func (th *Theater) Diagnosed(code, wrong, right string, args ...string) {
	th.T.Helper()
	if codes := th.Doctor(wrong, args...); !slices.Contains(codes, code) {
		th.T.Errorf("the doctor reports %v, and not %s", codes, code)
	}
	if codes := th.Doctor(right, args...); slices.Contains(codes, code) {
		th.T.Errorf("of a right file, the doctor reports %v", codes)
	}
}

// DoctorsReport is what outboard check prints about kube-scheduler's configuration.
type DoctorsReport struct {
	Findings   []doctor.Finding
	NotChecked []doctor.Omission
	Text       string
}

// InNamespace runs outboard check --cluster.
func (th *Theater) InNamespace(kubeconfig string, args ...string) DoctorsReport {
	th.T.Helper()
	cmd := exec.CommandContext(th.Ctx, th.Binary(), append([]string{"check", "--outboard-namespace", "outboard-system", "--kubeconfig", kubeconfig, "-o", "json"}, args...)...)
	out, err := cmd.Output()
	r := DoctorsReport{Text: string(out)}
	if json.Unmarshal(out, &r) != nil {
		th.T.Fatalf("%v: %s", err, out)
	}
	return r
}
