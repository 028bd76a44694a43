package theater

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"outboard.dev/outboard/internal/wiring/doctor"
)

// Doctor runs outboard doctor on a file and returns its findings, and the corrected file.
func (th *Theater) Doctor(config string, args ...string) (codes []string, fixed string) {
	th.T.Helper()
	file := filepath.Join(th.T.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		th.T.Fatal(err)
	}
	// The exit status shows whether there are errors.
	report, _ := exec.CommandContext(th.Ctx, th.Binary(), append([]string{"doctor", file, "-o", "json"}, args...)...).Output()
	var found struct{ Findings []doctor.Finding }
	if err := json.Unmarshal(report, &found); err != nil {
		th.T.Fatalf("%v: %s", err, report)
	}
	for _, f := range found.Findings {
		codes = append(codes, f.Code)
	}
	_ = exec.CommandContext(th.Ctx, th.Binary(), append([]string{"doctor", file, "--fix", "--write"}, args...)...).Run()
	text, err := os.ReadFile(file)
	if err != nil {
		th.T.Fatal(err)
	}
	return codes, string(text)
}

// Diagnosed fails the test unless the doctor finds the code; it returns the corrected file.
func (th *Theater) Diagnosed(code, config string, args ...string) string {
	th.T.Helper()
	codes, fixed := th.Doctor(config, args...)
	if !slices.Contains(codes, code) {
		th.T.Errorf("the doctor reports %v, and not %s", codes, code)
	}
	return fixed
}

// DoctorsReport is what outboard doctor prints.
type DoctorsReport struct {
	Findings   []doctor.Finding
	NotChecked []doctor.Omission
	Text       string
}

// InNamespace runs outboard doctor --outboard-namespace outboard-system.
func (th *Theater) InNamespace(kubeconfig string, args ...string) DoctorsReport {
	th.T.Helper()
	cmd := exec.CommandContext(th.Ctx, th.Binary(), append([]string{"doctor", "--outboard-namespace", "outboard-system", "--kubeconfig", kubeconfig, "-o", "json"}, args...)...)
	out, err := cmd.Output()
	r := DoctorsReport{Text: string(out)}
	if json.Unmarshal(out, &r) != nil {
		th.T.Fatalf("%v: %s", err, out)
	}
	return r
}
