// Package finished remembers which parts of a long test an earlier run of the same program has finished.
package finished

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// List is a file with a line for each part that is finished, and what came of it. It is not safe for concurrent use.
type List struct {
	name    string // of the file; "": nothing is remembered
	program string
	parts   map[string]string // what came of each
}

// Open reads the file, which need not exist. Without a name, nothing is remembered.
func Open(name string) (*List, error) {
	l := &List{name: name, parts: map[string]string{}}
	if name == "" {
		return l, nil
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	code, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(code)
	l.program = fmt.Sprintf("%x ", sum[:8])
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		if line, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), l.program); ok {
			part, result, _ := strings.Cut(line, "\t")
			l.parts[part] = result
		}
	}
	return l, nil
}

// Program identifies the running program, and so the code that it tests.
func (l *List) Program() string { return l.program }

// Result returns what came of the part, if the program has finished it.
func (l *List) Result(part string) (result string, ok bool) {
	result, ok = l.parts[part]
	return result, ok
}

// Add remembers that the program has finished the part. Neither text has a line break, and the part has no tab.
func (l *List) Add(part, result string) error {
	if l.name == "" {
		return nil
	}
	file, err := os.OpenFile(l.name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(l.program + part + "\t" + result + "\n")
	l.parts[part] = result
	return errors.Join(err, file.Close())
}
