package equality

import (
	"flag"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// maxShards is the number of tests that go test runs concurrently. It is more than there are processors, because some tests wait most
// of the time.
const maxShards = 16

// inShards draws the checks in shards, which run concurrently, and returns the sum of their counts. begin returns what one shard
// checks.
func inShards(t *testing.T, shards int, begin func(*testing.T) func(*rapid.T, *counts)) *counts {
	var sum counts
	var mu sync.Mutex
	fewer(t, shards)
	t.Run("shards", func(t *testing.T) {
		for i := range shards {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				var own counts
				check := begin(t)
				rapid.Check(t, func(t *rapid.T) { check(t, &own) })
				mu.Lock()
				defer mu.Unlock()
				sum.add(own)
			})
		}
	})
	return &sum
}

// fewer makes rapid draw one of this many checks, rounded up, until the test ends.
func fewer(t *testing.T, of int) {
	checks := flag.Lookup("rapid.checks").Value
	all := checks.String()
	n, err := strconv.Atoi(all)
	if err != nil {
		t.Fatal(err)
	}
	set := func(text string) {
		if err := checks.Set(text); err != nil {
			t.Error(err)
		}
	}
	set(strconv.Itoa((n + of - 1) / of))
	t.Cleanup(func() { set(all) })
}
