package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// visible writes control characters, other than the ends of lines and tabs, as JSON escapes them:
// names and messages of a cluster may have them, and a terminal would obey. JSON remains the same.
type visible struct{ io.Writer }

var control = regexp.MustCompile(`[^\P{Cc}\n\t]|[\x{202a}-\x{202e}\x{2066}-\x{2069}]`)

func (v visible) Write(p []byte) (int, error) {
	_, err := v.Writer.Write(control.ReplaceAllFunc(p, func(c []byte) []byte {
		r, _ := utf8.DecodeRune(c)
		return fmt.Appendf(nil, `\u%04x`, r)
	}))
	return len(p), err
}

// formats are the formats of every command that has the flag --output.
var formats = []string{"text", "json", "yaml"}

// outputFlag is the flag for the format of what a command prints.
type outputFlag struct{ format string }

func (o *outputFlag) register(cmd *cobra.Command) {
	choice(cmd, &o.format, "output", "o", alternatives(formats), formats...)
}

// check returns an error unless the format is one of the command.
func (o *outputFlag) check() error { return oneOf("output", o.format, formats...) }

// write writes to w in the format. The functions write JSON and text.
func (o *outputFlag) write(w io.Writer, asJSON, text func(io.Writer) error) error {
	switch o.format {
	case "json":
		return asJSON(w)
	case "yaml":
		return writeYAML(w, asJSON)
	}
	return text(w)
}

// writeYAML writes what the function writes as JSON.
func writeYAML(w io.Writer, asJSON func(io.Writer) error) error {
	var document bytes.Buffer
	if err := asJSON(&document); err != nil {
		return err
	}
	data, err := yaml.JSONToYAML(document.Bytes())
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// inJSON returns a function that writes the value as JSON.
func inJSON(value any) func(io.Writer) error {
	return func(w io.Writer) error { return writeJSON(w, value) }
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// choice adds a flag whose value is one of the words, the first of which is the default. Shells
// complete the words.
func choice(cmd *cobra.Command, value *string, name, short, usage string, words ...string) {
	cmd.Flags().StringVarP(value, name, short, words[0], usage)
	complete(cmd, name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}
