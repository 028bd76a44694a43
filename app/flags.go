package app

import (
	"fmt"
	"slices"
	"strings"
)

// oneOf checks the value of a flag that takes one of a few words.
func oneOf(flag, value string, words ...string) error {
	if slices.Contains(words, value) {
		return nil
	}
	return fmt.Errorf("--%s=%q: must be %s", flag, value, strings.Join(words, " or "))
}
