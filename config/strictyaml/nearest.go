package strictyaml

import "strings"

// Nearest returns the known name that is most similar to name: with the fewest letters added,
// dropped, changed or swapped with their neighbor, ignoring case; the first of several. It returns "" if
// none is similar.
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
	return best
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
