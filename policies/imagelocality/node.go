package imagelocality

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// maxSize bounds the size of one image, in bytes (1 TiB), so that no sum of sizes overflows. Larger
// sizes count as this.
const maxSize = 1 << 40

// image is the hash of a normalized image name. Nodes have a hundred names each, which often
// differ: hashes take a third of the memory of a map, and the garbage collector does not scan them.
// Different names practically never have the same hash, and an attacker cannot find such names,
// because the seed is random.
type image uint64

func (p *imageLocality) image(name string) image {
	return image(maphash.String(p.seed, normalize(name)))
}

// images are the images on a node.
type images struct {
	names []image // ascending, without duplicates
	sizes []int64 // of the names, in bytes; 0: unknown; nil unless sizes count
}

func (p *imageLocality) imagesOf(n *corev1.Node) images {
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

// find returns the index of the image, or -1. Hashes are evenly distributed, so the search starts
// near the expected index.
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
