package e2e

import (
	"context"
	"flag"
	"os"
	"sync"
	"testing"

	"outboard.dev/outboard/test/stage"
)

// atOnce is how many tests run at once unless the command line says. Most of their time
// they wait: for a kube-scheduler that backs off, or for values to grow old.
const atOnce = "4"

// binary is Outboard, built once for all tests.
var binary = sync.OnceValues(func() (string, error) { return stage.Build(context.Background()) })

// plugged is kube-scheduler with the plugin, built once for all tests.
var plugged = sync.OnceValues(func() (string, error) { return stage.BuildScheduler(context.Background()) })

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
