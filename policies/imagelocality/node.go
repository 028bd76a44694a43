package imagelocality

import (
	"hash/maphash"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// image is the hash of a normalized image name. Nodes have a hundred names each, which often
// differ: hashes take a third of the memory of a map, and the garbage collector does not scan them.
// Different names practically never have the same hash, and an attacker cannot find such names,
// because the seed is random.
type image uint64

func (p *imageLocality) image(name string) image {
	return image(maphash.String(p.seed, normalize(name)))
}

// images are the names of the images on a node, ascending and without duplicates.
type images []image

func (p *imageLocality) imagesOf(n *corev1.Node) images {
	on := make(images, 0, 2*len(n.Status.Images)) // usually a tag and a digest each
	for i := range n.Status.Images {
		for _, name := range n.Status.Images[i].Names {
			on = append(on, p.image(name))
		}
	}
	slices.Sort(on)
	return slices.Clip(slices.Compact(on))
}

// has reports whether the image is there. Hashes are evenly distributed, so the search starts near
// the expected index.
func (on images) has(name image) bool {
	at, _ := bits.Mul64(uint64(name), uint64(len(on)))
	i := int(at)
	for i > 0 && on[i] > name {
		i--
	}
	for i < len(on) && on[i] < name {
		i++
	}
	return i < len(on) && on[i] == name
}
