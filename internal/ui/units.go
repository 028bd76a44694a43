package ui

import (
	"cmp"
	"iter"
	"slices"
	"strconv"

	"outboard.dev/outboard/policy"
)

// listers returns the policies that allocate units, each resource once.
func (s *Source) listers() iter.Seq[policy.UnitList] {
	return func(yield func(policy.UnitList) bool) {
		c, view := s.Config(), s.View()
		seen := map[string]bool{}
		for i := range c.Profiles {
			for _, q := range c.Profiles[i].Policies {
				lister, ok := q.Policy.(policy.UnitLister)
				if !ok {
					continue
				}
				list := lister.Units(view)
				if !seen[string(list.Resource)] {
					seen[string(list.Resource)] = true
					if !yield(list) {
						return
					}
				}
			}
		}
	}
}

// resources returns what policies allocate in units, in order of name.
func (s *Source) resources() []Resource {
	all := []Resource{}
	for list := range s.listers() {
		all = append(all, Resource{string(list.Resource), list.Title, list.Unit})
	}
	slices.SortFunc(all, func(a, b Resource) int { return cmp.Compare(a.Title, b.Title) })
	return all
}

// units returns all units of the resource.
func (s *Source) units(resource string) Units {
	u := Units{Resource: Resource{Resource: resource}, Generation: s.View().Generation(), Groups: []string{}, Nodes: []NodeUnits{}}
	for list := range s.listers() {
		if string(list.Resource) != resource {
			continue
		}
		u.Title, u.Unit = list.Title, list.Unit
		slices.SortFunc(list.Nodes, func(a, b policy.NodeUnits) int {
			return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Node, b.Node))
		})
		for _, n := range list.Nodes {
			if last := len(u.Groups) - 1; last < 0 || u.Groups[last] != n.Group {
				u.Groups = append(u.Groups, n.Group)
			}
			u.Nodes = append(u.Nodes, flat(&n, len(u.Groups)-1))
		}
		break
	}
	return u
}

func flat(n *policy.NodeUnits, group int) NodeUnits {
	f := NodeUnits{Node: n.Node, Group: group, Units: make([]int64, 0, 4*len(n.Units))}
	named := false
	for i := range n.Units {
		u := &n.Units[i]
		var flags int64
		if u.Unhealthy {
			flags |= Unhealthy
		}
		if u.Gone {
			flags |= Gone
		}
		f.Units = append(f.Units, u.Capacity, u.Used, u.Reserved, flags)
		named = named || u.Name != strconv.Itoa(i)
	}
	if named {
		for i := range n.Units {
			f.Names = append(f.Names, n.Units[i].Name)
		}
	}
	return f
}
