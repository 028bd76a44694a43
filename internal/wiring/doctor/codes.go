package doctor

import "outboard.dev/outboard/docs/reference"

// Codes is the page about findings, with a section for each code.
var Codes = reference.Findings
