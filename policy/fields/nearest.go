package fields

import (
	"cmp"
	"strings"
)

// Nearest returns the known name that is most similar to name: with the fewest letters added,
// dropped, changed or swapped with their neighbor, ignoring case; the first of several. If all
// differ in more than two letters, the longest that begins with name or with which name begins
// comes first, such as max for maximum. Nearest returns "" if none is similar.
func Nearest(name string, known []string) string {
	const longest = 64 // longer than any real name; bounds the work
	if len(name) > longest {
		return ""
	}
	best, limit := "", (len(name)+2)/3
	for _, k := range known {
		if len(k) > longest {
			continue
		}
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d <= limit {
			best, limit = k, d-1
		}
	}
	if best != "" && limit < 2 { // limit is one less than the distance
		return best
	}
	const least = 3 // letters that two names share
	prefix := ""
	for _, k := range known {
		short, long := strings.ToLower(name), strings.ToLower(k)
		if len(short) > len(long) {
			short, long = long, short
		}
		if len(short) >= least && strings.HasPrefix(long, short) && len(k) > len(prefix) {
			prefix = k
		}
	}
	return cmp.Or(prefix, best)
}

// distance is the optimal string alignment distance in bytes.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
