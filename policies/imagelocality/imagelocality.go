// Package imagelocality is the policy ImageLocality: how much of a pod is on a
// node already. README.md in this folder is its documentation.
package imagelocality

import (
	"cmp"
	"context"
	"encoding/binary"
	"math/bits"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// maxSize bounds the size that is believed of one image, in bytes (1 TiB), so that
// no sum of sizes overflows.
const maxSize = 1 << 40

// checkEvery is after how many nodes a long search looks at its context.
const checkEvery = 1024

// fewImages is how many images a pod may have to be looked up one by one on any node.
const fewImages = 8

// image is a normalized image name. Names are interned, because thousands of
// nodes have the same ones.
type image = unique.Handle[string]

// imageLocality is the policy.
type imageLocality struct {
	bySize bool
	sizes  *snapshot.ObjectFact[map[image]int64] // of the images on a node, in bytes; 0 is unknown
}

func newImageLocality(config Config) *imageLocality {
	return &imageLocality{bySize: config.ScoringStrategy.Type == Size, sizes: snapshot.NewObjectFact(imagesOn)}
}

func imagesOn(n *corev1.Node) map[image]int64 {
	sizes := make(map[image]int64, 2*len(n.Status.Images)) // mostly a tag and a digest each
	for i := range n.Status.Images {
		reported := &n.Status.Images[i]
		for _, name := range reported.Names {
			key := unique.Make(normalize(name))
			sizes[key] = max(sizes[key], min(reported.SizeBytes, maxSize))
		}
	}
	return sizes
}

// Prepare implements policy.Policy.
func (p *imageLocality) Prepare(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	wanted := imagesOf(pod)
	if len(wanted) == 0 {
		return nil, nil
	}
	c := &cycle{sizes: p.sizes, wanted: wanted}
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
			c.weights[w.name] = w.weight
		}
	}
	return c, nil
}

// imagesOf returns the images that have to be on a node before the pod's
// containers can all start, each once and with weight 1.
func imagesOf(pod *corev1.Pod) []wantedImage {
	names := make([]string, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if name := containers[i].Image; name != "" {
				names = append(names, normalize(name))
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	wanted := make([]wantedImage, len(names))
	for i, name := range names {
		wanted[i] = wantedImage{unique.Make(name), 1}
	}
	return wanted
}

// findSizes sets the weights to the images' sizes, as the first node in order of
// name has them that knows. An image of unknown size weighs as much as the
// others do on average, and if none is known all weigh the same.
func (p *imageLocality) findSizes(ctx context.Context, wanted []wantedImage, view *snapshot.View) error {
	for i := range wanted {
		wanted[i].weight = 0
	}
	unknown, total, visited := len(wanted), uint64(0), 0
	for n := range view.All() {
		if visited++; visited%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		on := *p.sizes.Of(n)
		for i := range wanted {
			if w := &wanted[i]; w.weight == 0 && on[w.name] > 0 {
				w.weight = uint64(on[w.name])
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
	sizes  *snapshot.ObjectFact[map[image]int64]
	wanted []wantedImage // not empty
	total  uint64        // the sum of their weights, not 0
	// weights are those of wanted, by name: a pod may have thousands of containers. Nil if it has few images.
	weights map[image]uint64
}

type wantedImage struct {
	name   image
	weight uint64
}

// Signature implements policy.Signature: the images and their weights.
func (c *cycle) Signature() string {
	var text []byte
	for _, w := range c.wanted {
		name := w.name.Value()
		text = append(binary.AppendUvarint(text, uint64(len(name))), name...)
		text = binary.AppendUvarint(text, w.weight)
	}
	return string(text)
}

// Score implements policy.Score: the part of the pod's images that the node has.
func (c *cycle) Score(n *snapshot.Node) int64 {
	on := *c.sizes.Of(n)
	present := uint64(0)
	if c.weights == nil || len(c.wanted) <= len(on) {
		for _, w := range c.wanted {
			if _, ok := on[w.name]; ok {
				present += w.weight
			}
		}
	} else {
		for name := range on {
			present += c.weights[name]
		}
	}
	high, low := bits.Mul64(uint64(policy.MaxScore), present)
	score, _ := bits.Div64(high, low, c.total)
	return int64(score)
}
