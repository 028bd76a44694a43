// Package app is the command outboard as a library: what serves, simulates, explains, audits, checks and verifies. A
// program that serves policies of its own calls it as cmd/outboard does:
//
//	func main() {
//		policies := append(standard.Types(), mine.Type())
//		os.Exit(app.Run(app.NewCommand(app.WithPolicies(policies...))))
//	}
//
// Every subcommand that loads a configuration then knows the policies.
package app
