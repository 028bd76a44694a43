package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

func TestCommand(t *testing.T) {
	var asked recorder
	good := serve(t, asked.extender())
	bad := serve(t, scored(func(s *extenderv1.HostPriorityList) { add(s, 90) })())
	objects := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(objects, []byte(`
kind: List
items:
- {kind: Node, metadata: {name: rack-1}}
- {kind: Pod, metadata: {name: old, uid: uid-old}, spec: {nodeName: rack-1}}
---
{kind: Pod, metadata: {name: train}}
---
{kind: Secret, metadata: {name: ignored}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args   string
		status int
		want   string // in the output or the error
	}{
		{"", exitFailed, "give one URL"},
		{"--verbs place " + good, exitFailed, `"place" is none of [filter prioritize preempt bind]`},
		{"--objects /nowhere " + good, exitFailed, "--objects /nowhere: open /nowhere"},
		{"http://127.0.0.1:1", exitFailed, "no connection to http://127.0.0.1:1 succeeded"},
		{"--verbs prioritize " + bad, exitViolated, "✗ score-range "},
		{"--verbs filter,preempt --objects " + objects + " " + good, 0, "✓ preempt-known "},
	} {
		var out strings.Builder
		status, err := verify(t.Context(), quick(Options{}), strings.Fields(tt.args), &out)
		if err != nil {
			out.WriteString(err.Error())
		}
		if status != tt.status || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: status %d, want %d with %q:\n%s", tt.args, status, tt.status, tt.want, &out)
		}
	}
	if first := asked.filter[0]; (*first.NodeNames)[0] != "rack-1" || first.Pod.Name != "train" {
		t.Errorf("asked about %v and pod %s", *first.NodeNames, first.Pod.Name)
	}
}
