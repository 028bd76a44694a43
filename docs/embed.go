// Package docs embeds the pages that the command prints.
package docs

import _ "embed"

// Doctor is doctor.md, which has a section for each code of a finding.
//
//go:embed doctor.md
var Doctor string
