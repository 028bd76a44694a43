// Package imagelocality is the policy ImageLocality: how many of a pod's images are on a node
// already. README.md in this folder is its documentation.
package imagelocality

import (
	"cmp"
	"context"
	"encoding/binary"
	"hash/maphash"
	"math/bits"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// checkEvery is after how many nodes a long search checks its context.
const checkEvery = 1024

// fewImages is up to how many images of a pod are looked up one by one on each node.
const fewImages = 8

// imageLocality is the policy.
type imageLocality struct {
	bySize bool
	seed   maphash.Seed
	images *snapshot.ObjectFact[images]
}

func newImageLocality(config Config) *imageLocality {
	p := &imageLocality{bySize: config.ScoringStrategy.Type == Size, seed: maphash.MakeSeed()}
	p.images = snapshot.NewObjectFact(p.imagesOf)
	return p
}

// Inputs implements policy.InputReader.
func (p *imageLocality) Inputs() policy.Inputs { return policy.Inputs{ScoreOnly: true} }

// Prepare implements policy.Policy.
func (p *imageLocality) Prepare(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	wanted := p.request(pod)
	if len(wanted) == 0 {
		return nil, nil
	}
	c := &cycle{policy: p, wanted: wanted}
	if p.bySize {
		if err := p.findSizes(ctx, wanted, view); err != nil {
			return nil, err
		}
	}
	for _, w := range wanted {
		c.total += w.weight
	}
	if len(wanted) > fewImages {
		c.weights = make(map[image]uint64, len(wanted))
		for _, w := range wanted {
			c.weights[w.image] = w.weight
		}
	}
	return c, nil
}

// findSizes sets the weights to the images' sizes, each from the first node in order of name that
// reports it. An image of unknown size gets the mean of the others, and if no size is known all
// weights are equal.
func (p *imageLocality) findSizes(ctx context.Context, wanted []wantedImage, view *snapshot.View) error {
	for i := range wanted {
		wanted[i].weight = 0
	}
	unknown, total, visited := len(wanted), uint64(0), 0
	for n := range view.All() {
		if visited++; visited%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		on := p.images.Of(n)
		for i := range wanted {
			w := &wanted[i]
			if w.weight > 0 {
				continue
			}
			if found := on.find(w.image); found >= 0 && on.sizes[found] > 0 {
				w.weight = uint64(on.sizes[found])
				total += w.weight
				unknown--
			}
		}
		if unknown == 0 {
			return nil
		}
	}
	mean := uint64(1)
	if unknown < len(wanted) {
		mean = total / uint64(len(wanted)-unknown)
	}
	for i := range wanted {
		wanted[i].weight = cmp.Or(wanted[i].weight, mean)
	}
	return nil
}

// cycle is the policy prepared for one pod.
type cycle struct {
	policy *imageLocality
	wanted []wantedImage // not empty
	total  uint64        // the sum of their weights, not 0
	// weights are those of wanted, by name, because a pod may have thousands of containers. Nil if
	// it has few images.
	weights map[image]uint64
}

// Signature implements policy.Signature: the images and their weights.
func (c *cycle) Signature() string {
	var text []byte
	for _, w := range c.wanted {
		text = append(binary.AppendUvarint(text, uint64(len(w.name))), w.name...)
		text = binary.AppendUvarint(text, w.weight)
	}
	return string(text)
}

// Score implements policy.Score: the share of the pod's images that the node has.
func (c *cycle) Score(n *snapshot.Node) int64 {
	on := c.policy.images.Of(n)
	present := uint64(0)
	if c.weights == nil || len(c.wanted) <= len(on.names) {
		for i := range c.wanted {
			if on.find(c.wanted[i].image) >= 0 {
				present += c.wanted[i].weight
			}
		}
	} else {
		for _, name := range on.names {
			present += c.weights[name]
		}
	}
	high, low := bits.Mul64(uint64(policy.MaxScore), present)
	score, _ := bits.Div64(high, low, c.total)
	return int64(score)
}
