// Package reference has pages that commands print.
package reference

import _ "embed"

// Findings is findings.md, which has a section for each code of a finding of outboard check.
//
//go:embed findings.md
var Findings string
