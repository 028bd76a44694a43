package verify

import "slices"

// Rules returns every rule, in the order of the report.
func Rules() []Rule { return slices.Clone(rules) }
