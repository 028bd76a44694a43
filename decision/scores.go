package decision

import "unsafe"

// Scores are the scores of all nodes that a call scored, of which its Record lists the
// best alone.
type Scores struct {
	// Nodes are the names of the nodes, in any order, and Totals their totals.
	Nodes  []string
	Totals []int32
	// Policies are the policies that score, and Parts, for each of them in turn, the
	// scores of all nodes.
	Policies []ScoringPolicy
	Parts    []uint8
	// Claimed says that nodes with the largest total possible have it because the pod
	// holds a claim there, and no other node has it.
	Claimed bool
}

// ScoringPolicy is a policy whose scores count with its weight.
type ScoringPolicy struct {
	Name   string
	Weight int64
}

// size is how many bytes the Scores take, the names themselves left out.
func (s *Scores) size() int {
	return len(s.Nodes)*int(unsafe.Sizeof("")+unsafe.Sizeof(int32(0))) + len(s.Parts)
}

// chosen returns the score of the node, and how it compares with those of the others; nil
// if the node was not scored. maxTotal is the largest total possible.
func (s *Scores) chosen(node string, maxTotal int64) *ChosenNode {
	for i, name := range s.Nodes {
		if name != node {
			continue
		}
		total := s.Totals[i]
		c := &ChosenNode{ScoredNode: ScoredNode{Node: node, Total: int64(total), HoldsClaim: s.Claimed && int64(total) == maxTotal}}
		for at, p := range s.Policies {
			c.Scores = append(c.Scores, Score{Policy: p.Name, Score: int64(s.Parts[at*len(s.Nodes)+i]), Weight: p.Weight})
		}
		for j, other := range s.Totals {
			switch {
			case other > total:
				c.Better++
			case other == total && j != i:
				c.Equal++
			}
		}
		return c
	}
	return nil
}
