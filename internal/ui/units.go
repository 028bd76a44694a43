package ui

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/policy"
)

// listers yields the policies that allocate units.
func listers(c *config.Config) iter.Seq[policy.UnitLister] {
	return func(yield func(policy.UnitLister) bool) {
		for i := range c.Profiles {
			for _, q := range c.Profiles[i].Policies {
				if lister, ok := q.Policy.(policy.UnitLister); ok && !yield(lister) {
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
	// by has the policies that allocate each of them, in order.
	by map[string][]policy.UnitLister
}

// resources returns those of the configuration in use. It lists the units only once, because there
// are many.
func (s *Source) resources(latest *atomic.Pointer[resources]) *resources {
	c := s.Config()
	if r := latest.Load(); r != nil && r.config == c {
		return r
	}
	r := &resources{config: c, all: []Resource{}, by: map[string][]policy.UnitLister{}}
	for lister := range listers(c) {
		list := lister.Units(s.View())
		r.by[string(list.Resource)] = append(r.by[string(list.Resource)], lister)
		if x := (Resource{string(list.Resource), list.Title, list.Unit}); !slices.Contains(r.all, x) {
			r.all = append(r.all, x)
		}
	}
	slices.SortFunc(r.all, func(a, b Resource) int { return cmp.Compare(a.Title, b.Title) })
	latest.Store(r)
	return r
}

// units returns the units of the resource on the node, or on all nodes if that is "". It asks only
// the policies that allocate it, because each looks at all nodes.
func (s *Source) units(resource string, known *resources, node string) *Units {
	c := newUnits(Resource{Resource: resource, Title: resource}) // nobody may allocate it any more
	groups, count := map[string][]*policy.NodeUnits{}, 0
	for _, lister := range known.by[resource] {
		list := lister.Units(s.View())
		c.Title, c.Unit = list.Title, list.Unit
		for i := range list.Nodes {
			if n := &list.Nodes[i]; node == "" || n.Node == node {
				groups[n.Group] = append(groups[n.Group], n)
				count += len(n.Units)
			}
		}
	}
	c.Groups = slices.AppendSeq(c.Groups, maps.Keys(groups))
	slices.Sort(c.Groups)
	c.Used = slices.Grow(c.Used, count)
	for group, name := range c.Groups {
		nodes := groups[name]
		slices.SortFunc(nodes, func(a, b *policy.NodeUnits) int { return cmp.Compare(a.Node, b.Node) }) // they usually are in this order
		for i, n := range nodes {
			if i > 0 && n.Node == nodes[i-1].Node {
				continue // two policies allocate the same units
			}
			c.addNode(n.Node, group, namesOf(n.Units), len(n.Units))
			for j := range n.Units {
				u := &n.Units[j]
				c.addUnit(u.Capacity, u.Used, u.Reserved, flagsOf(u))
			}
		}
	}
	c.name()
	return c
}

// name sets the noun.
func (c *Units) name() {
	c.Noun = "unit"
	if strings.Contains(strings.ToLower(c.Resource.Resource), "gpu") {
		c.Noun = "GPU"
	}
	if len(c.Names) > 0 && !slices.ContainsFunc(c.Names, func(names []string) bool { return len(names) != 1 }) {
		for i, node := range c.Nodes {
			if c.Names[i][0] != node {
				return
			}
		}
		c.Noun = "pool"
	}
}

// flagsOf returns the flags of a unit.
func flagsOf(u *policy.Unit) (flags int64) {
	if u.Unhealthy {
		flags |= Unhealthy
	}
	if u.Gone {
		flags |= Gone
	}
	return flags
}

// namesOf returns the names of the units, or nil if they are 0, 1, 2, ….
func namesOf(units []policy.Unit) (names []string) {
	named := false
	for i := range units {
		named = named || units[i].Name != strconv.Itoa(i)
	}
	if !named {
		return nil
	}
	for i := range units {
		names = append(names, units[i].Name)
	}
	return names
}

// newUnits returns a table without units, of which no column is null in JSON.
func newUnits(r Resource) *Units {
	none := []int64{}
	return &Units{Resource: r, Groups: []string{}, Nodes: []string{}, Group: none, Count: none, Capacity: none, Used: none, Reserved: none, Flags: none}
}

// addNode adds a node, whose units follow. names are those of its units; nil if they are 0, 1, 2,
// ….
func (c *Units) addNode(node string, group int, names []string, units int) {
	if names != nil && c.Names == nil {
		c.Names = [][]string{}
		for range c.Nodes {
			c.Names = append(c.Names, []string{})
		}
	}
	if c.Names != nil {
		c.Names = append(c.Names, append([]string{}, names...))
	}
	c.Nodes = append(c.Nodes, node)
	c.Group = appendRun(c.Group, int64(group))
	c.Count = appendRun(c.Count, int64(units))
}

func (c *Units) addUnit(capacity, used, reserved, flags int64) {
	c.Capacity = appendRun(c.Capacity, capacity)
	c.Used = append(c.Used, used)
	c.Reserved = appendRun(c.Reserved, reserved)
	c.Flags = appendRun(c.Flags, flags)
}

// appendRun appends the value to runs.
func appendRun(runs []int64, value int64) []int64 {
	if last := len(runs) - 2; last >= 0 && runs[last] == value {
		runs[last+1]++
		return runs
	}
	return append(runs, value, 1)
}
