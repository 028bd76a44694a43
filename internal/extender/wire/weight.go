package wire

import "bytes"

// Weight returns how much memory encoding/json may allocate to decode the JSON into a Kubernetes
// object: at most so many bytes for each object, member, and element of a list. The largest element
// of a list is a container, with 424 bytes. A growing list takes at most 2.25 times the memory of
// its elements, because the old elements live until they are copied. The result is an upper bound,
// several times the memory of a usual Pod; punctuation in strings counts, too.
func Weight(object []byte) int64 {
	count := func(of string) int { return bytes.Count(object, []byte(of)) }
	return int64(len(object) + 1024*count("{") + 256*(count("[")+count(",")) + 64*count(":"))
}
