package theater

import (
	"path/filepath"
	"slices"
	"strings"

	"outboard.dev/outboard/test/stage"
)

// PlayExample starts an example, without its pods.
func (th *Theater) PlayExample(name string) *stage.Play {
	th.T.Helper()
	example, err := stage.ReadExample(filepath.Join(th.Root, "examples", name))
	if err != nil {
		th.T.Fatal(err)
	}
	play, err := th.Play(th.Ctx, example)
	if err != nil {
		th.T.Fatal(err)
	}
	th.anyNode = example.Nodes[0].Name
	th.T.Cleanup(func() {
		if th.T.Failed() {
			th.T.Logf("outboard:\n%s", play.Outboard.Log())
		}
	})
	return play
}

// Notes returns the explanations of the policies for the node and a pending pod.
func (th *Theater) Notes(o *stage.Outboard, pod, node string) string {
	th.T.Helper()
	for _, profile := range th.ExplainPending(o, pod).Now {
		for _, x := range profile.Explanations {
			if x.Node != node {
				continue
			}
			var notes []string
			for _, p := range x.Policies {
				notes = slices.Concat(notes, p.Notes)
			}
			return strings.Join(notes, "\n")
		}
	}
	return ""
}
