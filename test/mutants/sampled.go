package main

import (
	"context"
	"fmt"
	"time"
)

// module is the path of the root module.
const module = "outboard.dev/outboard"

// mutated are the packages of which mutants are generated; ... stands for all folders below. Each mutant is judged by the tests of its own
// package.
var mutated = []string{"./internal/engine", "./snapshot", "./internal/cluster/...", "./internal/ledger", "./policies/..."}

// judges has the folder of the tests that judge a package without tests.
var judges = map[string]string{"internal/cluster/assumption": "internal/cluster"}

// early has the tests that run first, because those of the package take long. The others run if these do not kill the mutant.
var early = map[string]string{
	"internal/cluster": "^Test(Assumption|Response|ViewFor|Forget|Nominat|Claims|ConfigMapsOf|Sending|PodsConverge|History|Late|Name|State|Intern|FirstReading|Templates|Reduce|Meaning|Repeated|Transport)",
}

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

// samplePackage runs the chosen mutants of the package.
func (r *runner) samplePackage(ctx context.Context, p *mutatedPackage, chosen map[*mutant]bool) error {
	judge := p.dir
	if other := judges[p.dir]; other != "" {
		judge = other
	}
	state, err := stateOf(p.dir, judge)
	if err != nil {
		return err
	}
	patterns := []string{"."}
	if first := early[judge]; first != "" {
		patterns = []string{first, "."}
	}
	var tests *program
	for _, m := range p.mutants {
		if !chosen[m] {
			continue
		}
		err := r.judge(m.name, state, func() (killer string, err error) {
			if tests == nil {
				if tests, err = r.build(ctx, p.files, judge); err != nil {
					return "", err
				}
				if err := tests.measure(ctx); err != nil {
					return "", err
				}
			}
			for _, pattern := range patterns {
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
	return nil
}

// measure runs all tests without a mutant, and gives mutants a few times as long.
func (p *program) measure(ctx context.Context) error {
	started := time.Now()
	p.limit = 10 * time.Minute
	killer, err := p.run(ctx, 0, ".")
	if err == nil && killer != "" {
		err = fmt.Errorf("the tests of %s fail without a mutant: %s", p.dir, killer)
	}
	p.limit = 3*time.Since(started) + 10*time.Second
	return err
}
