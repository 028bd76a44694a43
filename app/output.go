package app

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// outputFlag is the flag for the format of what a command prints.
type outputFlag struct{ format string }

func (o *outputFlag) register(cmd *cobra.Command) {
	flagOf(cmd, "output", "o", &o.format, "text", "text", "json", "yaml")
}

// check returns an error unless the format is one of the command.
func (o *outputFlag) check() error { return oneOf("output", o.format, "text", "json", "yaml") }

// write writes the value in the format; text writes it as text.
func (o *outputFlag) write(w io.Writer, value any, text func(io.Writer) error) error {
	switch o.format {
	case "json":
		return writeJSON(w, value)
	case "yaml":
		data, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	}
	return text(w)
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// flagOf adds a flag whose value is one of the words, and completes them.
func flagOf(cmd *cobra.Command, name, short string, value *string, byDefault string, words ...string) {
	cmd.Flags().StringVarP(value, name, short, byDefault, alternatives(words))
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // fails only without the flag
}
