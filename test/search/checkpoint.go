package search

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Checkpoint is where an unfinished search is kept, so that a later call of Explore continues it.
type Checkpoint struct {
	// File is the name of the file. It is written from time to time, replaced in one step, and removed in the end.
	File string
	// ID identifies the program and the scope. A search with another ID begins anew.
	ID string
	// Interval is how long to search until the file is written again.
	Interval time.Duration
}

// checkpoint is the first line of the file. After it come, as binary numbers, the visited states, how each was reached, and the indices of those
// whose moves are to be taken: first those of this depth, then those of the next one. A World is not written: its moves lead to it again.
type checkpoint struct {
	ID                          string
	Depth, Steps                int
	Visited, Frontier, NextOnes int
}

// save writes the search between two moves.
func (s *search) save(c *Checkpoint, frontier, next []reached) (err error) {
	file, err := os.CreateTemp(filepath.Dir(c.File), filepath.Base(c.File)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // fails after the file is renamed
	w := bufio.NewWriterSize(file, 1<<20)
	err = json.NewEncoder(w).Encode(checkpoint{c.ID, s.result.Depth, s.result.Steps, len(s.nodes), len(frontier), len(next)})
	for d := range s.visited {
		w.Write(d[:])
	}
	var b []byte
	for _, n := range s.nodes {
		m := n.move
		b = binary.LittleEndian.AppendUint32(b[:0], uint32(n.before))
		w.Write(append(b, byte(m.kind), byte(m.replica), byte(m.a), byte(m.b), byte(m.c)))
	}
	for _, list := range [][]reached{frontier, next} {
		for _, r := range list {
			w.Write(binary.LittleEndian.AppendUint32(b[:0], uint32(r.index)))
		}
	}
	if err = errors.Join(err, w.Flush(), file.Close()); err != nil { // Flush returns the error of a Write
		return err
	}
	return os.Rename(file.Name(), c.File)
}

// restore continues the search from the file, if that has the same ID. first is the World in which the search begins.
func (s *search) restore(c *Checkpoint, first *World) (frontier, next []reached, err error) {
	file, err := os.Open(c.File)
	if errors.Is(err, fs.ErrNotExist) {
		return []reached{{0, first}}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	r := bufio.NewReaderSize(file, 1<<20)
	line, err := r.ReadBytes('\n')
	var head checkpoint
	if err = errors.Join(err, json.Unmarshal(line, &head)); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.File, err)
	}
	if head.ID != c.ID {
		return []reached{{0, first}}, nil, nil
	}
	visited, nodes, wanted := make(map[digest]struct{}, head.Visited), make([]node, head.Visited), make([]int32, head.Frontier+head.NextOnes)
	read := func(b []byte) []byte {
		if err == nil {
			_, err = io.ReadFull(r, b)
		}
		return b
	}
	var d digest
	for range head.Visited {
		read(d[:])
		visited[d] = struct{}{}
	}
	b := make([]byte, 9)
	for i := range nodes {
		read(b)
		m := Move{moveKind(b[4]), int8(b[5]), int8(b[6]), int8(b[7]), int8(b[8])}
		nodes[i] = node{int32(binary.LittleEndian.Uint32(b)), m}
	}
	for i := range wanted {
		wanted[i] = int32(binary.LittleEndian.Uint32(read(b[:4])))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.File, err)
	}
	s.visited, s.nodes, s.result.Depth, s.result.Steps = visited, nodes, head.Depth, head.Steps
	worlds, err := s.replay(first, wanted)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.File, err)
	}
	return worlds[:head.Frontier:head.Frontier], worlds[head.Frontier:], nil
}

// replay takes the moves that lead to the wanted nodes, each once.
func (s *search) replay(first *World, wanted []int32) ([]reached, error) {
	// Nodes come after the one before them, so that one pass backward finds those on the way.
	at := make(map[int32]int, len(wanted)) // where each wanted node goes
	onTheWay := make([]bool, len(s.nodes))
	child, sibling := make([]int32, len(s.nodes)), make([]int32, len(s.nodes)) // 0: none
	for i, index := range wanted {
		at[index], onTheWay[index] = i, true
	}
	for i := len(s.nodes) - 1; i > 0; i-- {
		if before := s.nodes[i].before; onTheWay[i] {
			onTheWay[before] = true
			sibling[i], child[before] = child[before], int32(i)
		}
	}
	found := make([]reached, len(wanted))
	// Depth first: then few Worlds exist at a time that are not wanted.
	for stack := []reached{{0, first}}; len(stack) > 0; {
		from := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if i, ok := at[from.index]; ok {
			if _, known := s.visited[from.world.digest()]; !known {
				return nil, fmt.Errorf("the moves to state %d lead to another one", from.index)
			}
			found[i] = from
		}
		for c := child[from.index]; c != 0; c = sibling[c] {
			stack = append(stack, reached{c, from.world.After(s.nodes[c].move)})
		}
	}
	return found, nil
}
