package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"outboard.dev/outboard/app"
)

// commands returns the page about the command line: what each command does, and its flags.
// --help says the rest.
func commands() (string, error) {
	d := newDocument("Commands", "the commands in app/")
	root := app.NewCommand()
	d.paragraph("`outboard COMMAND --help` says more. Named `kubectl-outboard`, the program is a kubectl plugin: `kubectl outboard COMMAND`. The\n" +
		"exit status is 0 without findings, 1 with findings, and 2 if the command could not do its work.")
	var rows [][]string
	uses := map[string]int{}
	for _, group := range append(root.Groups(), &cobra.Group{ID: ""}) {
		each(root, func(cmd *cobra.Command) {
			if cmd.GroupID != group.ID {
				return
			}
			rows = append(rows, []string{"[`" + cmd.CommandPath() + "`](#" + anchor(cmd.CommandPath()) + ")", plain(cmd.Short)})
			for _, row := range flags(cmd) {
				uses[strings.Join(row, "|")]++
			}
		})
	}
	d.table([]string{"command", "what it does"}, rows)
	shared := map[string][]string{}
	each(root, func(cmd *cobra.Command) {
		d.line("## %s\n", cmd.CommandPath())
		d.line("`%s`\n", cmd.UseLine())
		var own [][]string
		var also []string
		for _, row := range flags(cmd) {
			if key := strings.Join(row, "|"); uses[key] > 1 {
				shared[key] = row
				also = append(also, row[0])
				continue
			}
			own = append(own, row)
		}
		if len(own) > 0 {
			d.table(flagHeader, own)
		}
		if len(also) > 0 {
			d.paragraph("[Also](#flags-of-several-commands) %s.", strings.Join(also, ", "))
		}
	})
	d.line("## Flags of several commands\n")
	rows = nil
	for _, key := range slices.Sorted(maps.Keys(shared)) {
		rows = append(rows, shared[key])
	}
	d.table(flagHeader, rows)
	return strings.TrimSuffix(d.String(), "\n"), nil
}

var flagHeader = []string{"flag", "default", "description"}

// each visits the commands below cmd that users can run, in order of name.
func each(cmd *cobra.Command, visit func(*cobra.Command)) {
	for _, sub := range cmd.Commands() {
		if sub.Runnable() && sub.IsAvailableCommand() && !sub.HasSubCommands() {
			visit(sub)
		}
		each(sub, visit)
	}
}

// flags returns the rows of the flags of a command.
func flags(cmd *cobra.Command) (rows [][]string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			rows = append(rows, flag(f))
		}
	})
	return rows
}

// saysOwnDefault matches the description of a flag whose default is not its value.
var saysOwnDefault = regexp.MustCompile(`^(.*) \(default:? (.*)\)$`)

func flag(f *pflag.Flag) []string {
	kind, usage := pflag.UnquoteUsage(f)
	name := strings.TrimSpace("--" + f.Name + " " + kind)
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	byDefault := ""
	switch f.DefValue {
	case "", "[]", "false":
	default:
		byDefault = code(f.DefValue)
	}
	if before, ok := strings.CutSuffix(usage, " (required)"); ok {
		usage, byDefault = before, "required"
	}
	if m := saysOwnDefault.FindStringSubmatch(usage); m != nil {
		usage, byDefault = m[1], plain(m[2])
	}
	return []string{code(name), byDefault, plain(usage)}
}
