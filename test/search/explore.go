package search

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Result is what a search has found.
type Result struct {
	States   int // visited
	Steps    int // moves taken
	Depth    int // all histories of up to so many moves were searched; if Finished, the length of the longest shortest history
	Finished bool
	// Broken is the first broken promise; nil if there is none.
	Broken error
	// History is how it comes to that: one line for each move.
	History []string
}

// node is a visited state: how it was first reached.
type node struct {
	before int32 // the index of the state before; -1: none
	move   Move
}

// reached is a state of which the moves are to be taken.
type reached struct {
	index int32
	world *World
}

const (
	// workers is how many goroutines take moves.
	workers = 2
	// between is from how many states all moves are taken until the search can end.
	between = 256
)

// Explore visits all states within the scope, those after fewer moves first, until a promise is broken, it has visited so many states (0: no
// limit), or ctx ends. The end of ctx is no error.
func Explore(ctx context.Context, scope Scope, states int) (Result, error) {
	first, err := NewWorld(scope)
	if err != nil {
		return Result{}, err
	}
	s := search{visited: map[digest]struct{}{first.digest(): {}}, nodes: []node{{before: -1}}}
	s.result.Broken = first.Check()
	frontier := []reached{{0, first}}
	for s.result.Broken == nil && ctx.Err() == nil && (states == 0 || len(s.nodes) <= states) {
		next := s.level(ctx, frontier)
		if s.result.Broken != nil || ctx.Err() != nil {
			break
		}
		if s.result.Finished = len(next) == 0; s.result.Finished {
			break
		}
		frontier = next
		s.result.Depth++
	}
	s.result.States = len(s.nodes)
	if s.result.Broken != nil {
		s.result.History, err = s.history(scope)
	}
	return s.result, err
}

// level takes all moves from the states until ctx ends, and returns the states that are new.
func (s *search) level(ctx context.Context, frontier []reached) (next []reached) {
	for len(frontier) > 0 && s.result.Broken == nil && ctx.Err() == nil {
		some := frontier[:min(len(frontier), between)]
		frontier = frontier[len(some):]
		next = append(next, s.expand(some)...)
	}
	return next
}

type search struct {
	visited map[digest]struct{}
	nodes   []node
	result  Result
	broken  int32
}

// expand takes all moves from the states, and returns the states that are new, in the order of the states before them and of their moves. This
// order is the same in each run, so that of several states with the same digest, the same one is visited.
func (s *search) expand(frontier []reached) []reached {
	after := make([][]successor, len(frontier))
	each(len(frontier), func(i int) {
		world := frontier[i].world
		frontier[i].world = nil // so that it can be garbage-collected
		for _, m := range world.Moves() {
			next := successor{move: m, world: world.After(m)}
			next.digest = next.world.digest()
			if _, known := s.visited[next.digest]; known {
				next.world = nil
			}
			after[i] = append(after[i], next)
		}
	})
	var next []reached
	for i, from := range frontier {
		s.result.Steps += len(after[i])
		for _, a := range after[i] {
			if _, known := s.visited[a.digest]; known {
				continue
			}
			s.visited[a.digest] = struct{}{}
			next = append(next, reached{int32(len(s.nodes)), a.world})
			s.nodes = append(s.nodes, node{from.index, a.move})
		}
	}
	broken := make([]error, len(next))
	each(len(next), func(i int) { broken[i] = next[i].world.Check() })
	if i := slices.IndexFunc(broken, func(err error) bool { return err != nil }); i >= 0 {
		s.result.Broken, s.broken = broken[i], next[i].index
	}
	return next
}

// successor is what a move leads to.
type successor struct {
	move   Move
	world  *World // nil: it was visited before
	digest digest
}

// each calls the function with each number below n, in several goroutines.
func each(n int, f func(i int)) {
	var group sync.WaitGroup
	for part := range workers {
		group.Go(func() {
			for i := part; i < n; i += workers {
				f(i)
			}
		})
	}
	group.Wait()
}

// history returns the moves to the broken promise.
func (s *search) history(scope Scope) ([]string, error) {
	var moves []Move
	for i := s.broken; s.nodes[i].before >= 0; i = s.nodes[i].before {
		moves = append(moves, s.nodes[i].move)
	}
	w, err := NewWorld(scope)
	if err != nil {
		return nil, err
	}
	var lines []string
	for i := len(moves) - 1; i >= 0; i-- {
		lines = append(lines, w.Text(moves[i]))
		w = w.After(moves[i])
	}
	return lines, nil
}

// String describes the result.
func (r Result) String() string {
	text := fmt.Sprintf("%d states, %d moves, longest history %d", r.States, r.Steps, r.Depth)
	if r.Broken != nil {
		text += fmt.Sprintf("; after %d moves, %v:\n  %s", len(r.History), r.Broken, strings.Join(r.History, "\n  "))
	}
	return text
}
