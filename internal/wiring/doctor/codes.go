package doctor

import _ "embed"

// Codes is codes.md, which has a section for each code of a finding.
//
//go:embed codes.md
var Codes string
