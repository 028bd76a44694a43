package policy

import (
	"fmt"
	"strings"
)

// Join returns the items with commas between them, for a line of an [Explainer]: the first limit
// items, and how many more there are.
func Join(items []string, limit int) string {
	if more := len(items) - limit; more > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(items[:limit], ", "), more)
	}
	return strings.Join(items, ", ")
}
