package search

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
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

// Options are how to search.
type Options struct {
	// States is the number of states after which the search ends; 0: no limit.
	States int
	// Progress is called after each number of moves, if it is not nil.
	Progress func(depth, states, frontier int)
	// Checkpoint is where the search is kept until it ends; nil: nowhere.
	Checkpoint *Checkpoint
	// Continued is called if an earlier search is continued, if it is not nil.
	Continued func(depth, states int)
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
	// between is from how many states all moves are taken until the search can be saved.
	between = 256
)

// Explore visits all states within the scope, those after fewer moves first, until a promise is broken or ctx ends. The end of ctx is no error.
func Explore(ctx context.Context, scope Scope, o Options) (Result, error) {
	first, err := NewWorld(scope)
	if err != nil {
		return Result{}, err
	}
	s := search{visited: map[digest]struct{}{first.digest(): {}}, nodes: []node{{before: -1}}, saved: time.Now()}
	if s.result.Broken = first.Check(); s.result.Broken != nil {
		s.result.States = len(s.nodes)
		return s.result, nil
	}
	frontier, next := []reached{{0, first}}, []reached(nil)
	if o.Checkpoint != nil {
		if frontier, next, err = s.restore(o.Checkpoint, first); err != nil {
			return Result{}, err
		}
		if o.Continued != nil && len(s.nodes) > 1 {
			o.Continued(s.result.Depth, len(s.nodes))
		}
	}
	for ; len(frontier) > 0; s.result.Depth++ {
		s.result.States = len(s.nodes)
		if o.Progress != nil {
			o.Progress(s.result.Depth, len(s.nodes), len(frontier))
		}
		if o.States > 0 && len(s.nodes) > o.States && next == nil {
			return s.result, s.end(o.Checkpoint)
		}
		if frontier, err = s.level(ctx, frontier, next, o.Checkpoint); err != nil {
			return Result{}, err
		}
		next = nil
		if s.result.Broken != nil {
			s.result.States = len(s.nodes)
			s.result.History, err = s.history(scope)
			return s.result, err
		}
		if ctx.Err() != nil {
			s.result.States = len(s.nodes)
			return s.result, s.end(o.Checkpoint)
		}
	}
	s.result.Depth--
	s.result.Finished = true
	return s.result, s.end(o.Checkpoint)
}

// level takes all moves from the states until ctx ends, saves the search from time to time, and returns the states that are new, after those in
// next.
func (s *search) level(ctx context.Context, frontier, next []reached, c *Checkpoint) ([]reached, error) {
	for len(frontier) > 0 && s.result.Broken == nil && ctx.Err() == nil {
		some := frontier[:min(len(frontier), between)]
		frontier = frontier[len(some):]
		next = append(next, s.expand(some)...)
		if c != nil && len(frontier) > 0 && time.Since(s.saved) > c.Interval && s.result.Broken == nil {
			if err := s.save(c, frontier, next); err != nil {
				return nil, err
			}
			s.saved = time.Now()
		}
	}
	return next, nil
}

// end removes what is kept of the search.
func (s *search) end(c *Checkpoint) error {
	if c == nil {
		return nil
	}
	if err := os.Remove(c.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

type search struct {
	visited map[digest]struct{}
	nodes   []node
	result  Result
	broken  int32
	saved   time.Time // when the search was last saved, or began
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
