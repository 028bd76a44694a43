package fields

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// domain is that of the annotations that only Outboard's policies read.
const domain = "outboard.dev/"

// Misspelled returns an error about the first annotation of the pod that a policy would ignore,
// although its key is similar to one that the policy reads, or about a label with such a key, if the
// key begins with outboard.dev/. Without the annotation, the pod would get what it does not want.
func Misspelled(pod *corev1.Pod, read ...string) error {
	names := make([]string, len(read))
	for i, key := range read {
		names[i] = strings.TrimPrefix(key, domain)
	}
	for _, set := range []struct {
		what, hint string
		keys       map[string]string
	}{{"annotation", "unknown; did you mean", pod.Annotations}, {"label", "did you mean the annotation", pod.Labels}} {
		first, meant := "", ""
		for key := range set.keys {
			short, ours := strings.CutPrefix(key, domain)
			if !ours || set.what == "annotation" && slices.Contains(read, key) || first != "" && first < key {
				continue
			}
			if near := domain + Nearest(short, names); slices.Contains(read, near) {
				first, meant = key, near
			}
		}
		if first != "" {
			return fmt.Errorf("%s %.200q: %s %s?", set.what, first, set.hint, meant)
		}
	}
	return nil
}

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
