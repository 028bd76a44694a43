package decision

import "unsafe"

// Scores are the scores of all nodes that a call scored; its Record lists only the best ones.
type Scores struct {
	// Nodes are the names of the nodes, in any order, and Totals their totals.
	Nodes  []string
	Totals []int32
	// Policies are the policies that score, with their weights, and Parts the scores of all nodes
	// for each of them.
	Policies []Policy
	Parts    []uint8
	// Allocated is true if the nodes with the largest possible total have it because the pod holds
	// an allocation there, and no other node has it.
	Allocated bool
}

// size returns the memory of the Scores, without the names themselves, in bytes.
func (s *Scores) size() int {
	return len(s.Nodes)*int(unsafe.Sizeof("")+unsafe.Sizeof(int32(0))) + len(s.Parts)
}

// chosen returns the score of the node, and how it compares with those of the others; nil if the
// node was not scored. maxTotal is the largest possible total.
func (s *Scores) chosen(node string, maxTotal int64) *ChosenNode {
	for i, name := range s.Nodes {
		if name != node {
			continue
		}
		total := s.Totals[i]
		c := &ChosenNode{ScoredNode: ScoredNode{Node: node, Total: int64(total), HoldsAllocation: s.Allocated && int64(total) == maxTotal}}
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
