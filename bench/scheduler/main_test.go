package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// Arms start this program again, as another extender.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serveArgument {
		if err := serve(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A few pods on a few nodes have plausible figures. Only the arms with an extender have its time.
func TestSmallCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	o, err := parse([]string{"-nodes", "30", "-arms", "stock,outboard-8,ideal-1", "-rounds", "1", "-pods", "300", "-limit", "2m"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.interval = 10 * time.Millisecond
	var out strings.Builder
	c, err := startCluster(ctx, o, o.plan[0].nodes, false, &out)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	results, err := o.measure(ctx, c, o.plan[0], &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for i, r := range results {
		if r.Pods == 0 || r.PodsPerSecond <= 0 || r.Scheduler <= 0 || r.APIServer <= 0 || r.Etcd <= 0 || r.Filter <= 0 || r.AttemptP99 < r.AttemptP50 || r.Failed != 0 ||
			r.NodesUsed < 1 || r.NodesUsed > 30 || r.MostOnOne*r.NodesUsed < r.Pods || (r.Extender > 0) != (i > 0) {
			t.Errorf("%+v", r)
		}
	}
	if err := report(&out, o.plan[0], results); err != nil || len(results) != 3 {
		t.Errorf("%d results: %v", len(results), err)
	}
}
