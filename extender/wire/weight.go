package wire

import "bytes"

// What encoding/json makes of a part of a Kubernetes object, in bytes and at most.
// The largest element of a list is a container, of 424 bytes; the memory of a list
// that grows is at most 2.25 times that of its elements, because the old elements
// live until they have been copied. The entries that take most are those of a map
// of quantities.
const (
	objectWeight = 1 << 10
	memberWeight = 256
)

// Weight is how much memory encoding/json may take to make a Kubernetes object of
// the JSON, found in a single pass over it. It is a bound, several times what a
// usual Pod takes: what counts is that a body made to take the most memory for
// each of its bytes does not take more.
func Weight(object []byte) int64 {
	weight := int64(len(object))
	for i := 0; i < len(object); i++ {
		switch object[i] {
		case '"':
			quote := bytes.IndexByte(object[i+1:], '"')
			if quote < 0 {
				return weight
			}
			end := i + 1 + quote
			if object[end-1] == '\\' {
				if end = stringEnd(object, i+1) - 1; end < 0 {
					return weight
				}
			}
			i = end
		case '{':
			weight += objectWeight
		case '[', ',':
			weight += memberWeight
		case ':':
			weight += memberWeight / 4
		}
	}
	return weight
}
