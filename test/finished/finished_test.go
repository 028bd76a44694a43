package finished

import (
	"path/filepath"
	"testing"
)

// A later run of the same program skips what is finished, and another program does not.
func TestList(t *testing.T) {
	name := filepath.Join(t.TempDir(), "finished")
	open := func(name string) *List {
		l, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := open(name)
	if _, ok := first.Result("a"); ok || first.Program() == "" {
		t.Errorf("an empty list has a part, or the program is %q", first.Program())
	}
	other := open(name)
	other.program = "other "
	for _, add := range []struct {
		to   *List
		part string
	}{{first, "a"}, {other, "b"}, {open(""), "c"}} {
		if err := add.to.Add(add.part, "as it\tis"); err != nil {
			t.Fatal(err)
		}
	}
	again := open(name)
	for part, want := range map[string]bool{"a": true, "b": false, "c": false} {
		if result, ok := again.Result(part); ok != want || ok && result != "as it\tis" {
			t.Errorf("%s is finished: %t, want %t; it has %q", part, ok, want, result)
		}
	}
}
