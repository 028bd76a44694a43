// Package imagelocality is the policy ImageLocality: how many of a pod's images are on a node
// already. README.md in this folder is its documentation.
package imagelocality

import (
	"cmp"
	"context"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// maxSize bounds the size of one image, in bytes (1 TiB), so that no sum of sizes overflows. Larger
// sizes count as this.
const maxSize = 1 << 40

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
	p.images = snapshot.NewObjectFact(p.imagesOn)
	return p
}

// image is the hash of a normalized image name. Nodes have a hundred names each, which often differ: hashes take a
// third of the memory of a map, and the garbage collector does not scan them. Different names practically never have
// the same hash, and an attacker cannot find such names, because the seed is random.
type image uint64

func (p *imageLocality) image(name string) image {
	return image(maphash.String(p.seed, normalize(name)))
}

// images are the images on a node.
type images struct {
	names []image // ascending, without duplicates
	sizes []int64 // of the names, in bytes; 0: unknown; nil unless sizes count
}

func (p *imageLocality) imagesOn(n *corev1.Node) images {
	type named struct {
		name image
		size int64
	}
	all := make([]named, 0, 2*len(n.Status.Images)) // usually a tag and a digest each
	for i := range n.Status.Images {
		reported := &n.Status.Images[i]
		for _, name := range reported.Names {
			all = append(all, named{p.image(name), min(reported.SizeBytes, maxSize)})
		}
	}
	// If a name has two sizes, the larger one counts.
	slices.SortFunc(all, func(a, b named) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(b.size, a.size)) })
	all = slices.CompactFunc(all, func(a, b named) bool { return a.name == b.name })
	on := images{names: make([]image, len(all))}
	if p.bySize {
		on.sizes = make([]int64, len(all))
	}
	for i, found := range all {
		on.names[i] = found.name
		if p.bySize {
			on.sizes[i] = max(found.size, 0)
		}
	}
	return on
}

// find returns the index of the image, or -1. Hashes are evenly distributed, so the search starts near the expected
// index.
func (on *images) find(name image) int {
	at, _ := bits.Mul64(uint64(name), uint64(len(on.names)))
	i := int(at)
	for i > 0 && on.names[i] > name {
		i--
	}
	for i < len(on.names) && on.names[i] < name {
		i++
	}
	if i < len(on.names) && on.names[i] == name {
		return i
	}
	return -1
}

// Inputs implements policy.InputReader.
func (p *imageLocality) Inputs() policy.Inputs { return policy.Inputs{ScoreOnly: true} }

// Prepare implements policy.Policy.
func (p *imageLocality) Prepare(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	wanted := p.imagesOf(pod)
	if len(wanted) == 0 {
		return nil, nil
	}
	c := &cycle{images: p.images, wanted: wanted}
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

// imagesOf returns the images that must be on a node before all containers of the pod can start, of containers and of volumes,
// without duplicates and with weight 1.
func (p *imageLocality) imagesOf(pod *corev1.Pod) []wantedImage {
	names := make([]string, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	add := func(name string) {
		if name != "" {
			names = append(names, normalize(name))
		}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			add(containers[i].Image)
		}
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			add(image.Reference)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	wanted := make([]wantedImage, len(names))
	for i, name := range names {
		wanted[i] = wantedImage{name, p.image(name), 1}
	}
	return wanted
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
	images *snapshot.ObjectFact[images]
	wanted []wantedImage // not empty
	total  uint64        // the sum of their weights, not 0
	// weights are those of wanted, by name, because a pod may have thousands of containers. Nil if it has few images.
	weights map[image]uint64
}

type wantedImage struct {
	name   string // normalized
	image  image
	weight uint64
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
	on := c.images.Of(n)
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
