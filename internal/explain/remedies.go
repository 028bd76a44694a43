package explain

import (
	"fmt"
	"strings"
)

// remedies writes with which changes the pod would fit.
func (d *Document) remedies(b *strings.Builder) {
	if d.Fits == nil || d.Fits.Fit > 0 || d.Change == d.failure() {
		return
	}
	if len(d.Now) > 1 {
		b.WriteString("\nBy all profiles together:\n")
	}
	if len(d.Remedies) == 0 {
		b.WriteString("  It would not fit with any single change that Outboard has tried.\n")
		return
	}
	b.WriteString("  It would fit\n")
	for i := range d.Remedies {
		fmt.Fprintf(b, "      %s\n", &d.Remedies[i])
	}
}

// change returns the smallest change with which the pod would fit, or why there is none; "" if no
// profile was asked.
func (d *Document) change() string {
	failure := d.failure()
	switch {
	case d.Fits == nil:
		return ""
	case len(d.Hints) > 0 && d.Fits.Fit == 0:
		return d.Hints[0]
	case len(d.Remedies) > 0:
		return d.Remedies[0].String()
	case failure != "":
		return failure
	case d.Fits.Fit > 0:
		return fmt.Sprintf("on %d of %d nodes now, by Outboard's policies", d.Fits.Fit, d.Fits.Nodes)
	}
	return "not by a single change"
}

// failure is the first error of a profile.
func (d *Document) failure() string {
	for i := range d.Now {
		if d.Now[i].Error != "" {
			return d.Now[i].Error
		}
	}
	return ""
}
