package imagelocality

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// maxListed is how many images are listed one by one.
const maxListed = 16

// Explain implements policy.Explainer: it lists which of the pod's images the node has, with the
// size that the node reports, and which it has to pull.
func (c *cycle) Explain(n *snapshot.Node) []string {
	if n == nil {
		return nil
	}
	on, sizes := *c.policy.images.Of(n), c.policy.sizes(n.Object)
	var present, missing []string
	for _, w := range c.wanted {
		switch size := sizes[w.image]; {
		case !on.has(w.image):
			missing = append(missing, printable(w.name))
		case size > 0:
			present = append(present, fmt.Sprintf("%s (%.1f MB)", printable(w.name), float64(size)/1e6))
		default:
			present = append(present, printable(w.name)+" (size unknown)")
		}
	}
	var lines []string
	if len(present) > 0 {
		lines = append(lines, "on the node: "+policy.Join(present, maxListed))
	}
	if len(missing) > 0 {
		lines = append(lines, "not on the node: "+policy.Join(missing, maxListed))
	}
	return lines
}

// sizes returns the sizes of the images that the node reports, in bytes.
func (p *imageLocality) sizes(n *corev1.Node) map[image]int64 {
	sizes := map[image]int64{}
	for i := range n.Status.Images {
		for _, name := range n.Status.Images[i].Names {
			sizes[p.image(name)] = max(sizes[p.image(name)], n.Status.Images[i].SizeBytes)
		}
	}
	return sizes
}

// printable returns the name, quoted if it would not be one line of text: the API server accepts
// any name in a pod.
func printable(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}
