package doctor

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// Omission is something that Check does not check.
type Omission struct {
	What string `json:"what"`
	// Why is the reason, or what makes the check possible.
	Why string `json:"why"`
}

// OmissionsText returns omissions as lines of text, one for each reason.
func OmissionsText(all []Omission) string {
	var b strings.Builder
	for i, o := range all {
		if slices.ContainsFunc(all[:i], func(before Omission) bool { return before.Why == o.Why }) {
			continue
		}
		var what []string
		for _, other := range all[i:] {
			if other.Why == o.Why {
				what = append(what, other.What)
			}
		}
		b.WriteString("not checked: " + strings.Join(what, ", ") + " (" + o.Why + ")\n")
	}
	return b.String()
}

// omit records that something is not checked. Each check that cannot run calls it. The first reason
// stays.
func (c *checker) omit(what, why string) {
	if !slices.ContainsFunc(c.omissions, func(o Omission) bool { return o.What == what }) {
		c.omissions = append(c.omissions, Omission{what, why})
	}
}

// readOrOmit returns the content of a file that one of the configurations names; nil if it cannot
// be read here.
func (c *checker) readOrOmit(name string, read func(string) ([]byte, error)) []byte {
	err := fs.ErrNotExist
	if read != nil {
		var text []byte
		if text, err = read(name); err == nil {
			return append([]byte{}, text...) // not nil
		}
	}
	if missing(name, read) != nil {
		return nil // FileNotFound reports it
	}
	why := err.Error()
	if errors.Is(err, fs.ErrNotExist) {
		why = "not on this machine"
	}
	c.omit(name, why)
	return nil
}

// listed reports whether the objects of a kind could be listed.
func (c *checker) listed(kind string) bool {
	err := c.Cluster.Unlisted[kind]
	if err != nil {
		c.omit(kind+" of the cluster", err.Error())
	}
	return err == nil
}
