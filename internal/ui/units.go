package ui

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"sync/atomic"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// lists yields the units of the policies that allocate some.
func lists(c *config.Config, view *snapshot.View) iter.Seq[policy.UnitList] {
	return func(yield func(policy.UnitList) bool) {
		for i := range c.Profiles {
			for _, q := range c.Profiles[i].Policies {
				if lister, ok := q.Policy.(policy.UnitLister); ok && !yield(lister.Units(view)) {
					return
				}
			}
		}
	}
}

// resources are what the policies of a configuration allocate in units, in order of name.
type resources struct {
	config *config.Config
	all    []Resource
}

// resources returns those of the configuration in use. It lists the units only once, because there are many.
func (s *Source) resources(latest *atomic.Pointer[resources]) []Resource {
	c := s.Config()
	if r := latest.Load(); r != nil && r.config == c {
		return r.all
	}
	r := &resources{config: c, all: []Resource{}}
	for list := range lists(c, s.View()) {
		if x := (Resource{string(list.Resource), list.Title, list.Unit}); !slices.Contains(r.all, x) {
			r.all = append(r.all, x)
		}
	}
	slices.SortFunc(r.all, func(a, b Resource) int { return cmp.Compare(a.Title, b.Title) })
	latest.Store(r)
	return r.all
}

// units returns all units of the resource.
func (s *Source) units(resource string) Units {
	u := Units{Resource: Resource{Resource: resource}, Groups: []string{}, Nodes: []NodeUnits{}}
	var nodes []policy.NodeUnits
	for list := range lists(s.Config(), s.View()) {
		if string(list.Resource) == resource {
			u.Title, u.Unit = list.Title, list.Unit
			nodes = append(nodes, list.Nodes...)
		}
	}
	slices.SortStableFunc(nodes, func(a, b policy.NodeUnits) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Node, b.Node))
	})
	for i := range nodes {
		n := &nodes[i]
		if i > 0 && n.Node == nodes[i-1].Node && n.Group == nodes[i-1].Group {
			continue // two policies allocate the same units
		}
		if last := len(u.Groups) - 1; last < 0 || u.Groups[last] != n.Group {
			u.Groups = append(u.Groups, n.Group)
		}
		u.Nodes = append(u.Nodes, flat(n, len(u.Groups)-1))
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
