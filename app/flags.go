package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/service"
)

// oneOf returns an error unless the value of the flag is one of the words.
func oneOf(flag, value string, words ...string) error {
	if slices.Contains(words, value) {
		return nil
	}
	return fmt.Errorf("--%s=%q: must be %s", flag, value, alternatives(words))
}

// alternatives returns the words as text, of which there are at least two.
func alternatives(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// number is the value of a flag between two numbers, inclusive. Another one is an error before the
// command does anything.
type number struct {
	value     *int
	low, high int
}

func (n number) String() string {
	if n.value == nil { // pflag compares with the zero value
		return ""
	}
	return strconv.Itoa(*n.value)
}

func (n number) Set(text string) error {
	value, err := strconv.Atoi(text)
	if err != nil || value < n.low || value > n.high {
		return fmt.Errorf("must be a number between %d and %d", n.low, n.high)
	}
	*n.value = value
	return nil
}

func (n number) Type() string { return "int" }

// wrongFlag words the error about a flag as the commands word theirs, with the usage of the command
// if there is no such flag.
func wrongFlag(cmd *cobra.Command, err error) error {
	if wrong := (*pflag.InvalidValueError)(nil); errors.As(err, &wrong) {
		err = wrong.Unwrap()
		if syntax := (*strconv.NumError)(nil); errors.As(err, &syntax) {
			err = errors.New("must be a number")
			if syntax.Func == "ParseBool" {
				err = errors.New("must be true or false")
			}
		}
		return fmt.Errorf("--%s=%q: %w", wrong.GetFlag().Name, wrong.GetValue(), err)
	}
	return fmt.Errorf("%w: usage: %s", err, cmd.UseLine())
}

// positional requires one argument for each name: an optional one is in brackets, as in the
// command's Use.
func positional(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > len(names) {
			return fmt.Errorf("%s takes no argument %q: usage: %s", cmd.CommandPath(), args[len(names)], cmd.UseLine())
		}
		for i, name := range names {
			if i >= len(args) && !strings.HasPrefix(name, "[") {
				return fmt.Errorf("%s is missing: usage: %s", name, cmd.UseLine())
			}
		}
		return nil
	}
}

// missing is the error of a required flag that is not given.
func missing(cmd *cobra.Command, flag string) error {
	return fmt.Errorf("--%s is missing: usage: %s", flag, cmd.UseLine())
}

// standardInput is what errors call standard input.
const standardInput = "standard input"

// readConfig reads a configuration of Outboard, which may be in a ConfigMap, for a command that
// needs it for its work. So it is no finding that it is not valid. The file and stdin are those of
// readInput.
func readConfig(file string, stdin io.Reader, types config.Types) (*config.Config, error) {
	name, data, err := readInput(file, stdin)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	c, err := config.ParseManifest(name, data, types)
	return c, service.Listed(err)
}

// readInput reads a file, or standard input if the file is "-" and stdin is not nil. name is what
// errors call it.
func readInput(file string, stdin io.Reader) (name string, data []byte, err error) {
	if file == "-" && stdin != nil {
		data, err = io.ReadAll(stdin)
		return standardInput, data, err
	}
	data, err = os.ReadFile(file)
	return file, data, err
}
