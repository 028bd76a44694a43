package wire

import "bytes"

// The memory, in bytes and at most, that encoding/json allocates for a part of a Kubernetes object.
// The largest element of a list is a container, with 424 bytes. A growing list takes at most 2.25
// times the memory of its elements, because the old elements live until they are copied. The
// largest entries are those of a map of quantities.
const (
	objectWeight = 1 << 10
	memberWeight = 256
)

// Weight returns how much memory encoding/json may allocate to decode the JSON into a Kubernetes
// object. It needs a single pass. The result is an upper bound, several times the memory of a usual
// Pod: even a body made to take the most memory for its size does not take more.
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
