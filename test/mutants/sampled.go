package main

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// module is the path of the root module.
const module = "outboard.dev/outboard"

// mutated are the packages of which mutants are generated; ... stands for all folders below. Each mutant is judged by the tests of its own
// package.
var mutated = []string{"./internal/engine", "./snapshot", "./internal/cluster/...", "./internal/ledger/...", "./policies/..."}

// sampled runs generated mutants.
func (r *runner) sampled(ctx context.Context) error {
	packages, err := load(ctx, mutated)
	if err != nil {
		return err
	}
	var all []*mutant
	for _, p := range packages {
		all = append(all, p.mutants...)
	}
	fmt.Fprintf(r.out, "%d mutants in %d packages\n", len(all), len(packages))
	chosen := map[*mutant]bool{}
	for _, m := range sample(all, r.sample, r.seed) {
		chosen[m] = true
	}
	for _, p := range packages {
		if err := r.samplePackage(ctx, p, chosen); err != nil {
			return err
		}
	}
	return nil
}

// samplePackage runs the chosen mutants of the package, and prints how long they took.
func (r *runner) samplePackage(ctx context.Context, p *mutatedPackage, chosen map[*mutant]bool) error {
	state, err := stateOf(p.dir)
	if err != nil {
		return err
	}
	var tests *program
	var patterns []string
	started, prepared, before := time.Now(), time.Duration(0), r.total-r.skipped
	for _, m := range p.mutants {
		if !chosen[m] {
			continue
		}
		err := r.judge(m.name, state, func() (killer string, err error) {
			if tests == nil {
				if tests, err = r.build(ctx, p.files, p.dir); err != nil {
					return "", err
				}
				if patterns, err = tests.measure(ctx); err != nil {
					return "", err
				}
				prepared = time.Since(started)
			}
			for _, pattern := range slices.Concat(tests.only(r.results.killerOf(m.name)), patterns) {
				if killer, err = tests.run(ctx, m.number, pattern); killer != "" || err != nil {
					return killer, err
				}
			}
			return "", nil
		})
		if err != nil {
			return err
		}
	}
	if n := r.total - r.skipped - before; n > 0 {
		fmt.Fprintf(r.out, "%s: %d mutants, %.1f s each, after %.1f s for compiling and running the tests without one\n",
			p.dir, n, (time.Since(started)-prepared).Seconds()/float64(n), prepared.Seconds())
	}
	return nil
}

// only returns the pattern that selects this test; none if the program does not have it any more.
func (p *program) only(test string) (patterns []string) {
	if slices.Contains(p.tests, test) {
		patterns = append(patterns, "^"+test+"$")
	}
	return patterns
}

var passed = regexp.MustCompile(`(?m)^--- (?:PASS|SKIP): (\S+) \((\d+\.\d+)s\)`)

// measure runs all tests without a mutant, and gives mutants a few times as long. It returns patterns that together select each test once: first
// those of tests that take little time, which kill most mutants.
func (p *program) measure(ctx context.Context) (patterns []string, err error) {
	started := time.Now()
	p.limit = 10 * time.Minute
	output, killer, err := p.output(ctx, 0, "-test.v")
	switch {
	case err != nil:
		return nil, err
	case killer != "":
		return nil, fmt.Errorf("the tests of %s fail without a mutant: %s", p.dir, killer)
	}
	p.limit = 3*time.Since(started) + 10*time.Second
	type test struct {
		name string
		took float64
	}
	var tests []test
	total := 0.0
	for _, match := range passed.FindAllSubmatch(output, -1) {
		took, err := strconv.ParseFloat(string(match[2]), 64)
		if err != nil {
			return nil, err
		}
		tests, total = append(tests, test{string(match[1]), took}), total+took
		p.tests = append(p.tests, string(match[1]))
	}
	slices.SortStableFunc(tests, func(a, b test) int { return cmp.Compare(a.took, b.took) })
	sum := 0.0
	for _, part := range []float64{0.05, 0.25, 1} { // of the time
		var names []string
		for len(tests) > 0 && (sum+tests[0].took <= part*total || part == 1) {
			names, sum, tests = append(names, tests[0].name), sum+tests[0].took, tests[1:]
		}
		if names != nil {
			patterns = append(patterns, "^("+strings.Join(names, "|")+")$")
		}
	}
	return patterns, nil
}
