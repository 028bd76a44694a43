package wire_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/extender/wire"
)

// Each filter, prioritize and preempt request of kube-scheduler's own client is decoded. kubernetes/wire records them.
func TestRequestsOfKubeScheduler(t *testing.T) {
	files, err := filepath.Glob("../../../kubernetes/wire/testdata/requests/*-n*.json")
	if err != nil || len(files) < 6 {
		t.Fatalf("%v: %q", err, files)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(file, "preempt") {
			var p wire.Preemption
			if err := p.Decode(body); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			continue
		}
		var r wire.Request
		if err := r.Decode(body); err != nil || r.Len() != 2 || string(r.Name(1)) != "node-b" {
			t.Errorf("%s: %v, %d nodes", file, err, r.Len())
		}
	}
}
