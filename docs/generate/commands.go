package main

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"outboard.dev/outboard/app"
)

// commands returns the page about the command line.
func commands(string) (string, error) {
	d := newDocument("Commands", "the commands in app/")
	d.paragraph("`outboard COMMAND --help` prints the same. Named `kubectl-outboard`, the program is a kubectl plugin: `kubectl outboard COMMAND`.")
	root := app.NewCommand()
	_, text, _ := strings.Cut(root.Long, "\n\n")
	prose(d, text)
	d.paragraph("Every command that prints facts has `--output`. `setup scheduler` prints files for kube-scheduler; `serve` and `ui` serve.")
	var rows [][]string
	for _, group := range append(root.Groups(), &cobra.Group{ID: ""}) {
		each(root, func(cmd *cobra.Command) {
			if groupOf(cmd) == group.ID {
				rows = append(rows, []string{group.ID, "[`" + cmd.CommandPath() + "`](#" + anchor(cmd.CommandPath()) + ")", plain(cmd.Short)})
			}
		})
	}
	d.table([]string{"group", "command", "what it does"}, rows)
	each(root, func(cmd *cobra.Command) { command(d, cmd) })
	return strings.TrimSuffix(d.String(), "\n"), nil
}

// each visits the commands below cmd that users can run, in order of name.
func each(cmd *cobra.Command, visit func(*cobra.Command)) {
	for _, sub := range cmd.Commands() {
		if sub.Runnable() && sub.IsAvailableCommand() && !sub.HasSubCommands() {
			visit(sub)
		}
		each(sub, visit)
	}
}

// groupOf returns the group of the command, or of the one above it.
func groupOf(cmd *cobra.Command) string {
	if cmd.GroupID == "" && cmd.HasParent() {
		return groupOf(cmd.Parent())
	}
	return cmd.GroupID
}

func command(d *document, cmd *cobra.Command) {
	d.line("## %s\n", cmd.CommandPath())
	d.line("`%s`\n", cmd.UseLine())
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	prose(d, text)
	if cmd.Example != "" {
		d.line("<!-- not run: the files and addresses are yours -->\n```sh")
		for line := range strings.Lines(cmd.Example) {
			d.line("%s", strings.TrimSpace(line))
		}
		d.line("```\n")
	}
	var rows [][]string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			rows = append(rows, flag(f))
		}
	})
	if len(rows) > 0 {
		d.table([]string{"flag", "default", "description"}, rows)
	}
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

// prose writes the paragraphs of a help text. Indented lines become the items of a list: the first
// word of each is code.
func prose(d *document, text string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		mark, block := "", ""
		write := func() {
			if block != "" {
				d.wrap(mark, plain(block))
			}
		}
		for line := range strings.Lines(paragraph) {
			rest := strings.TrimSpace(line)
			indent := len(line) - len(strings.TrimLeft(line, " "))
			switch item := indent == 1 || indent == 2; {
			case item || (indent == 0) != (mark == ""):
				write()
				if block != "" && item != (mark != "") {
					d.line("")
				}
				mark, block = "", rest
				if item {
					word, meaning, _ := strings.Cut(rest, " ")
					mark, block = "* ", "`"+word+"`: "+strings.TrimSpace(meaning)
				}
			default:
				block += " " + rest
			}
		}
		write()
		d.line("")
	}
}
