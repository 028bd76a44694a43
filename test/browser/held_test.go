package browser

import (
	"fmt"
	"net/url"
	"testing"

	"outboard.dev/outboard/internal/ui"
)

// An allocation links to the unit that it holds, whatever the units are called.
func TestHeldLinksToUnits(t *testing.T) {
	f := cluster()
	b, at := browse(t, f)
	b.size(1280, 900, "light")
	for resource, tt := range map[string]struct {
		noun  string
		names []string // of the units; none: 0 and 1
		last  string   // the name of the last unit
		shown string
	}{
		"example.com/gpu-memory": {"GPU", []string{}, "1", "GPU 1"},
		"example.com/gpu":        {"GPU", []string{"1", "5"}, "5", "GPU 5"},
		"example.com/fpga":       {"unit", []string{"a-0", "a-1"}, "a-1", "a-1"},
		"gpu.example.com":        {"GPU", []string{"pool/gpu-0", "pool/gpu-1"}, "pool/gpu-1", "pool/gpu-1"},
	} {
		f.change(func(f *fixture) {
			of := ui.Resource{Resource: resource, Title: resource}
			f.overview.Resources = []ui.Resource{of}
			f.units[resource] = ui.Units{
				Resource: of, Noun: tt.noun, Groups: []string{"kind"}, Nodes: []string{"n"}, Group: []int64{0, 1}, Count: []int64{2, 1}, Names: [][]string{tt.names},
				Capacity: []int64{8, 2}, Used: []int64{0, 2}, Reserved: []int64{0, 2}, Flags: []int64{0, 2},
			}
			f.held.Rows = []ui.HeldRow{{Resource: resource, Node: "n", Unit: tt.last, Namespace: "ml", Pod: "train", UID: "1", Amount: 2}}
			f.node = &ui.Node{Name: "n", Status: "Ready", Taints: []string{}, Resources: []ui.NodeResource{{Units: f.units[resource]}}, Signals: []ui.NodeSignal{},
				Rows: append(f.held.Rows, ui.HeldRow{Resource: resource, Node: "n", Unit: "other", Namespace: "ml", Pod: "other", UID: "2", Amount: 2})}
		})
		b.visit(at + "/ui/#/held?resource=" + resource)
		b.click(fmt.Sprintf(`tbody a[href="#/node/n?unit=%s"]`, url.QueryEscape(tt.last)))
		b.until(fmt.Sprintf(`[...document.querySelectorAll('tr.at')].map(e => e.cells[2].innerText.split('\n')[0]).join() === %q && document.querySelector('tr.at th').innerText.startsWith('train')`, tt.shown))
	}
}
