package wire

// String returns "names" or "nodes".
func (m Mode) String() string {
	switch m {
	case Names:
		return "names"
	case Nodes:
		return "nodes"
	}
	return "none"
}
