// Command generate writes the reference pages in docs/reference from the code: from the schema of
// configuration files, the registered metrics, and the command line. Run it
// in the root of the repository.
package main

import (
	"fmt"
	"os"
)

// page is a generated file. write returns its text.
type page struct {
	path  string
	write func() (string, error)
}

var pages = []page{
	{"docs/reference/commands.md", commands},
	{"docs/reference/configuration.md", configuration},
	{"docs/reference/metrics.md", metrics},
}

func main() {
	for _, p := range pages {
		text, err := p.write()
		if err == nil {
			err = os.WriteFile(p.path, []byte(text), 0o644)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "generate: %s: %v\n", p.path, err)
			os.Exit(1)
		}
	}
}
