package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/config"
	"outboard.dev/outboard/service"
)

func checkCommand(types config.Types) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file",
		Long: `Load a configuration file with its policies and signals, as serve does, and report all
errors. The command reads only this file, and makes no requests. FILE - is standard input.
The exit status is 1 if the file cannot be loaded.`,
		Example: `  outboard check outboard.yaml
  outboard check -o json outboard.yaml
  kubectl -n outboard-system get configmap outboard -o jsonpath='{.data.outboard\.yaml}' | outboard check -`,
		Args: positional("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("output", output, "text", "json"); err != nil {
				return err
			}
			name, c, err := check(args[0], cmd.InOrStdin(), types)
			report := checked{Valid: err == nil}
			if errs := (config.Errors)(nil); errors.As(err, &errs) {
				report.Errors = places(errs)
			} else if err != nil {
				return err
			}
			if c != nil {
				report.Warnings = places(c.Warnings)
			}
			if output == "json" {
				err = writeJSON(cmd.OutOrStdout(), report)
			} else {
				err = report.text(cmd.OutOrStdout(), name, c)
			}
			if err == nil && !report.Valid {
				err = errSilent
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// check loads the file, or standard input if the file is "-", and makes the engines of its profiles. name is what errors call it.
func check(file string, stdin io.Reader, types config.Types) (name string, c *config.Config, err error) {
	name, data, err := readInput(file, stdin)
	if err != nil {
		return name, nil, fmt.Errorf("configuration file: %w", err)
	}
	if c, err = config.Parse(name, data, types); err != nil {
		return name, nil, err
	}
	for i := range c.Profiles {
		if _, err := service.EngineOf(&c.Profiles[i], nil); err != nil {
			return name, nil, err
		}
	}
	return name, c, nil
}

// checked is the report about a configuration file.
type checked struct {
	Valid    bool    `json:"valid"`
	Errors   []place `json:"errors,omitempty"`
	Warnings []place `json:"warnings,omitempty"`
}

// place is an error or a warning about a place in a file.
type place struct {
	File string `json:"file"`
	// Line is from 1; 0 is the file as a whole.
	Line  int    `json:"line,omitempty"`
	Field string `json:"field,omitempty"`
	// Message is the whole line of text.
	Message string `json:"message"`
}

func places(errs config.Errors) []place {
	var all []place
	for _, e := range errs {
		all = append(all, place{e.File, e.Line, e.Path, e.Error()})
	}
	return all
}

// text writes a line for each error and warning. c is the configuration, if it is valid.
func (r *checked) text(w io.Writer, file string, c *config.Config) error {
	var b strings.Builder
	for _, e := range r.Errors {
		fmt.Fprintln(&b, e.Message)
	}
	for _, e := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", e.Message)
	}
	if r.Valid {
		fmt.Fprintf(&b, "%s is valid.\n", file)
		for _, p := range c.Profiles {
			var names []string
			for _, policy := range p.Policies {
				names = append(names, policy.Name)
			}
			fmt.Fprintf(&b, "profile %s: %s\n", p.Path, strings.Join(names, ", "))
		}
		for i := range c.Signals {
			fmt.Fprintf(&b, "signal %s: %s\n", c.Signals[i].Name, c.Signals[i].Type.Name)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
