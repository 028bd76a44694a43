// Command generate writes the reference pages in docs/reference from the code: from the schema of
// configuration files, the registered metrics, and the command line. Run it
// in the root of the repository.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// page is a generated file. write returns its text; root is the root of the repository.
type page struct {
	path  string
	write func(root string) (string, error)
}

var pages = []page{
	{"docs/reference/commands.md", commands},
	{"docs/reference/configuration.md", configuration},
	{"docs/reference/metrics.md", metrics},
}

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	for _, p := range pages {
		text, err := p.write(root)
		if err != nil {
			return fmt.Errorf("%s: %w", p.path, err)
		}
		if err := os.WriteFile(filepath.Join(root, p.path), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
