// Package app is the command outboard as a library, with all its subcommands. A program with its
// own policies calls it as cmd/outboard does:
//
//	func main() {
//		policies := append(standard.Types(), mine.Type())
//		os.Exit(app.Run(app.NewCommand(app.WithPolicies(policies...))))
//	}
//
// Configurations can then name these policies in every subcommand.
package app
