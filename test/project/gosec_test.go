package project

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each rule of gosec that is left out has a reason, and a place that still exists.
func TestRulesOfGosecAreLeftOutWithAReason(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root(t), "go.gosec.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Rules []struct {
			Rules        []string
			Path, Reason string
		} `json:"exclude-rules"`
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&config); err != nil || len(config.Rules) == 0 {
		t.Fatalf("got %+v, error %v", config, err)
	}
	files, err := exec.CommandContext(t.Context(), "git", "-C", root(t), "ls-files", "*.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range config.Rules {
		path, err := regexp.Compile("(?m)" + rule.Path)
		if err != nil || len(rule.Rules) == 0 || rule.Reason == "" || !path.MatchString("/"+strings.ReplaceAll(string(files), "\n", "\n/")) {
			t.Errorf("%v in %q, because %q: no reason, or no file (%v)", rule.Rules, rule.Path, rule.Reason, err)
		}
	}
}
