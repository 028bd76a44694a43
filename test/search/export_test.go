package search

// ForgetViews makes the next search meet Views in an order of its own, as in another process.
func ForgetViews() {
	views.Lock()
	defer views.Unlock()
	views.byKey, views.numbers, views.fits = nil, nil, nil
}

// Reachable returns how many states can be reached within the scope, in another order than [Explore]: it takes the moves of the latest state first.
func Reachable(scope Scope) (int, error) {
	first, err := NewWorld(scope)
	if err != nil {
		return 0, err
	}
	visited := map[digest]bool{first.digest(): true}
	for stack := []*World{first}; len(stack) > 0; {
		from := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, m := range from.Moves() {
			after := from.After(m)
			if d := after.digest(); !visited[d] {
				visited[d] = true
				stack = append(stack, after)
			}
		}
	}
	return len(visited), nil
}
