// Package app is the command outboard as a library: what serves, simulates, explains, audits and verifies. A program that
// serves policies of its own calls it as cmd/outboard does:
//
//	func main() {
//		os.Exit(app.Run(app.NewCommand()))
//	}
package app
