package config

import (
	"bytes"
	"regexp"

	"outboard.dev/outboard/internal/config/manifest"
	"outboard.dev/outboard/internal/config/strictyaml"
)

// holds matches a text that is meant to be a configuration of Outboard, and none that contains one,
// such as that of a plugin.
var holds = regexp.MustCompile(`(?m)^(?:\{?\s*")?(?:apiVersion"?\s*:\s*["']?outboard\.dev/|kind"?\s*:\s*["']?` + Kind + `\b)`)

// ParseManifest is like [Parse], and also reads the configuration in a ConfigMap, in a file with
// any other objects.
func ParseManifest(file string, data []byte, types Types) (*Config, error) {
	whole := manifest.Text{Data: data}
	documents := whole.Documents()
	var found []manifest.Text
	itself := len(documents) < 2
	for i := range documents {
		kind, values := documents[i].Object()
		if kind != "ConfigMap" && holds.Match(documents[i].Data) {
			itself = true
		}
		for _, v := range values {
			if holds.Match(v.Data) {
				found = append(found, v)
			}
		}
	}
	switch {
	case len(found) > 1:
		return nil, strictyaml.Errors{{File: file, Line: found[1].Line(0), Rule: "there is a second configuration in the file"}}
	case len(found) == 1:
		// As many lines as in the file are above it, so that every error has the line of the file.
		return Parse(file, append(bytes.Repeat([]byte("\n"), found[0].Line(1)-1), found[0].Data...), types)
	case !itself:
		return nil, strictyaml.Errors{{File: file, Rule: "there is no " + Kind + " in the file, and no ConfigMap that holds one"}}
	}
	return Parse(file, data, types)
}
