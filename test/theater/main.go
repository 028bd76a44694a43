package theater

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"outboard.dev/outboard/test/stage"
)

// atOnce is how many tests run in parallel unless a flag overrides it. Most of the time they wait:
// for the backoff of a kube-scheduler, or for values to become stale.
const atOnce = "4"

// Binary is Outboard, built once for all tests.
var Binary = sync.OnceValues(func() (string, error) { return stage.Build(context.Background()) })

// Plugged is kube-scheduler with the plugin, built once for all tests.
var Plugged = sync.OnceValues(func() (string, error) { return stage.BuildScheduler(context.Background()) })

// pool has the control planes of all tests that need no options for them.
var pool stage.Pool

// Main runs the tests of a package, for its TestMain.
func Main(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if err := pool.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
