package binder

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestWaiting follows the histories of testdata/waiting.txt.
func TestWaiting(t *testing.T) {
	text, err := os.ReadFile("testdata/waiting.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, histories, _ := strings.Cut(string(text), "\n\n# ")
	for history := range strings.SplitSeq(histories, "\n\n# ") {
		name, history, _ := strings.Cut(strings.TrimSpace(history), "\n")
		t.Run(name, func(t *testing.T) {
			began := time.Unix(1000, 0)
			at := func(text string) time.Time {
				d, err := time.ParseDuration(text)
				if err != nil {
					t.Fatal(err)
				}
				return began.Add(d)
			}
			lines := strings.Split(history, "\n")
			w := waiting{node: "a", stall: defaultStallTimeout, moved: began}
			for _, line := range lines {
				if uid := types.UID(strings.Fields(line)[1]); !slices.Contains(w.after, uid) {
					w.after = append(w.after, uid)
				}
			}
			for _, line := range lines {
				given, want, _ := strings.Cut(line, "=>")
				words := strings.Fields(given)
				if words[1] != string(w.after[0]) {
					t.Fatalf("the next pod is %s: %s", w.after[0], line)
				}
				pod := known{done: words[3] == "bound", ours: words[3] == "ours"}
				if words[3] == "awaited" {
					pod.since = at(words[5])
				}
				// Whatever else might be known leaves this wait as it is.
				w.next(at(words[0]), known{done: true})
				if w = w.next(at(words[0]), pod); follows(w, began) != strings.TrimSpace(want) {
					t.Fatalf("%s\nwhat follows is %s", line, follows(w, began))
				}
			}
		})
	}
}

// follows returns what follows, as histories have it.
func follows(w waiting, began time.Time) string {
	switch {
	case w.err != nil:
		return "do not bind: " + w.err.Error()
	case len(w.after) == 0:
		return "bind"
	case w.until.IsZero():
		return "look at once"
	}
	return fmt.Sprint("look at ", w.until.Sub(began))
}
