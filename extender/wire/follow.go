package wire

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

const (
	// lookAhead is how many names of the earlier request may be missing from this
	// one, in a row, before they are not passed over any more.
	lookAhead = 4
	// patience is how many names may be read in a row, before this request counts
	// as one in another order.
	patience = 16
	// stride is how many bytes are compared at once.
	stride = 512
)

// A follower reads names that come as in an earlier request.
type follower struct {
	like   *Request // nil: given up
	next   int      // the name of like that is expected
	missed int      // names read in a row that were not found
	taken  int      // names found
}

// read reads as many names as are equal to those of the earlier request, commas
// and all. If it reads none, the name at hand is to be read by other means.
func (f *follower) read(s *scanner, r *Request) bool {
	if len(r.listNames) == maxNodes {
		return false
	}
	for first := f.next; first < min(f.next+lookAhead, len(f.like.names)); first++ {
		from := int(f.like.names[first].from) - 1 // the quote
		equal := from + commonPrefix(f.like.body[from:], s.body[s.at:])
		if equal > int(f.like.names[first].to) { // the closing quote, too
			f.take(s, r, first, equal)
			return true
		}
	}
	if f.missed++; f.missed > patience {
		f.like = nil
		return false
	}
	r.listAlike = append(r.listAlike, -1)
	return false
}

// take takes the names from first on that end before the position in like.
func (f *follower) take(s *scanner, r *Request, first, equal int) {
	f.missed = 0
	shift := int32(s.at) - (f.like.names[first].from - 1)
	for f.next = first; f.next < len(f.like.names); f.next++ {
		name := f.like.names[f.next]
		if int(name.to) >= equal || len(r.listNames) == maxNodes {
			break
		}
		r.listNames = append(r.listNames, span{name.from + shift, name.to + shift})
		r.listAlike = append(r.listAlike, int32(f.next))
	}
	f.taken += f.next - first
	s.at = int(r.listNames[len(r.listNames)-1].to) + 1
}

// commonPrefix returns the length of the longest common prefix.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+stride <= n && bytes.Equal(a[i:i+stride], b[i:i+stride]); i += stride {
	}
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
