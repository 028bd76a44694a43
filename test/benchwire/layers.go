package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// layer is a part of Outboard that exists for speed or memory alone: without the layer, each response is the same.
type layer struct {
	name  string
	edits []edit // switch the layer off
}

// edit replaces text that occurs once in a file of the repository.
type edit struct{ file, old, new string }

// The layers by what is measured without them.
var (
	nodeCache  = layer{"results of policies, cached by pod template and node", []edit{{"internal/engine/cache.go", "policy.Signature)\n\tif !ok {", "policy.Signature)\n\tif ok = false; !ok {"}}}
	wireLayers = []layer{
		{"scores computed during the filter call", []edit{{"internal/extender/prescore.go", "return p.unused <= maxUnusedPrescores", "return false"}}},
		nodeCache,
		{"names of nodes as parts of one text", []edit{
			{"snapshot/index.go", "rest := all.String()", "_ = all.String()"},
			{"snapshot/index.go", "x.names[row], rest = rest[:len(n.Name)], rest[len(n.Name):]", "x.names[row] = n.Name"},
		}},
		{"each policy called for 256 nodes in a row", []edit{{"internal/engine/evaluation.go", "blockSize = 256", "blockSize = 1"}}},
		{"facts kept with the node", []edit{
			{"snapshot/fact.go", "\tif value := n.facts.find(f.key.weak)", "\tcomputed := f.compute(n)\n\treturn &computed\n\tif value := n.facts.find(f.key.weak)"},
			{"snapshot/fact.go", "\tif value := n.objectFacts.find(f.key.weak)", "\tcomputed := f.compute(n.Object)\n\treturn &computed\n\tif value := n.objectFacts.find(f.key.weak)"},
		}},
		{"memory of calls used again", []edit{{"internal/extender/calls.go", "if len(cs.free) == 0 {", "if true {"}}},
		{"pod taken from the watch, instead of decoded", []edit{{"internal/extender/request.go", "string(version)); pod != nil {", "string(version)); pod != nil && false {"}}},
	}
	leastWasteLayers = []layer{nodeCache, {"all nodes scored together", []edit{{"internal/engine/score.go", "scorer.rows != nil && ev.cache != nil", "false"}}}}
	pluginLayers     = []layer{
		nodeCache,
		{"table of NodeInfos", []edit{{"schedplugin/nodes.go", "if n == nil || !ok {", "if n == nil || !ok || true {"}}},
		{"node kept for its NodeInfo", []edit{{"schedplugin/nodes.go", "return s.node != nil &&", "return false &&"}}},
		{"cached verdicts read without the node", []edit{{"schedplugin/cycle.go", "slot != nil && slot.same &&", "false &&"}}},
	}
	publishLayers = []layer{{"rows in chunks of 64, instead of 4,096", []edit{{"snapshot/rowtable.go", "const chunkBits = 6", "const chunkBits = 12"}}}}
	requeueLayers = []layer{{"no evaluation while pods are only assumed", []edit{{"snapshot/view.go", "return v.room }", "return v.generation }"}}}}
	memoryLayers  = []layer{{"equal parts of pods and nodes shared", []edit{
		{"internal/cluster/intern.go", "func internPod(pod, like *corev1.Pod) {", "func internPod(pod, like *corev1.Pod) {\n\treturn"},
		{"internal/cluster/intern.go", "func internNode(node, like *corev1.Node) {", "func internNode(node, like *corev1.Node) {\n\treturn"},
		{"internal/cluster/intern.go", "func internImages(known *templates[string, []string], node *corev1.Node) {", "func internImages(known *templates[string, []string], node *corev1.Node) {\n\treturn"},
	}}}
)

// without writes the files without the layer to the folder, and the file for -overlay of the go command, and returns its path. The
// current directory is the root of the repository.
func (l layer) without(dir string) (string, error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, e := range l.edits {
		file, err := filepath.Abs(e.file)
		if err != nil {
			return "", err
		}
		edited := cmp.Or(overlay.Replace[file], file)
		text, err := os.ReadFile(edited)
		if err != nil {
			return "", err
		}
		if n := strings.Count(string(text), e.old); n != 1 {
			return "", fmt.Errorf("%s has %q %d times, so %q cannot be switched off", e.file, e.old, n, l.name)
		}
		overlay.Replace[file] = filepath.Join(dir, strings.ReplaceAll(e.file, "/", "-"))
		if err := os.WriteFile(overlay.Replace[file], []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}
