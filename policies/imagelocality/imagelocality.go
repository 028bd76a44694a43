// Package imagelocality is the policy ImageLocality: how many of a pod's images are on a node
// already. README.md in this folder is its documentation.
package imagelocality

import (
	"context"
	"encoding/binary"
	"hash/maphash"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// fewImages is up to how many images of a pod are looked up one by one on each node.
const fewImages = 8

// imageLocality is the policy.
type imageLocality struct {
	seed   maphash.Seed
	images *snapshot.ObjectFact[images]
}

func newImageLocality() *imageLocality {
	p := &imageLocality{seed: maphash.MakeSeed()}
	p.images = snapshot.NewObjectFact(p.imagesOf)
	return p
}

func (p *imageLocality) Inputs() policy.Inputs { return policy.Inputs{ScoreOnly: true} }

func (p *imageLocality) Prepare(_ context.Context, pod *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
	wanted := p.request(pod)
	if len(wanted) == 0 {
		return nil, nil
	}
	c := &cycle{policy: p, wanted: wanted}
	if len(wanted) > fewImages {
		c.isWanted = make(map[image]bool, len(wanted))
		for _, w := range wanted {
			c.isWanted[w.image] = true
		}
	}
	return c, nil
}

// cycle is the policy prepared for one pod.
type cycle struct {
	policy *imageLocality
	wanted []wantedImage // not empty
	// isWanted has the images of wanted, because a pod may have thousands of containers. Nil if it
	// has few images.
	isWanted map[image]bool
}

// Signature implements policy.Signature: the images.
func (c *cycle) Signature() string {
	var text []byte
	for _, w := range c.wanted {
		text = append(binary.AppendUvarint(text, uint64(len(w.name))), w.name...)
	}
	return string(text)
}

// Score implements policy.Score: the share of the pod's images that the node has.
func (c *cycle) Score(n *snapshot.Node) int64 {
	on := *c.policy.images.Of(n)
	present := 0
	if c.isWanted == nil || len(c.wanted) <= len(on) {
		for i := range c.wanted {
			if on.has(c.wanted[i].image) {
				present++
			}
		}
	} else {
		for _, name := range on {
			if c.isWanted[name] {
				present++
			}
		}
	}
	return policy.MaxScore * int64(present) / int64(len(c.wanted))
}
