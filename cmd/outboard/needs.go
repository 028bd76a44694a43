package main

import (
	"slices"

	"outboard.dev/outboard/config"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// needs is what the policies of a configuration need of the cluster beside nodes,
// pods and disruption budgets.
type needs struct {
	ledgers    bool
	configMaps []snapshot.ConfigMapSource
	history    bool // which pods have come and gone; it can be kept from any moment on
}

func needsOf(c *config.Config) needs {
	var n needs
	for i := range c.Profiles {
		for _, m := range c.Profiles[i].Policies {
			if _, ok := m.Policy.(policy.Reserver); ok {
				n.ledgers = true
			}
			if reader, ok := m.Policy.(policy.HistoryReader); ok && reader.ReadsHistory() {
				n.history = true
			}
			if reader, ok := m.Policy.(policy.ConfigMapReader); ok {
				for _, source := range reader.ConfigMaps() {
					if !slices.Contains(n.configMaps, source) {
						n.configMaps = append(n.configMaps, source)
					}
				}
			}
		}
	}
	return n
}

// cover says whether everything wanted is there that has to be from the start.
func (n needs) cover(wanted needs) bool {
	return (n.ledgers || !wanted.ledgers) &&
		!slices.ContainsFunc(wanted.configMaps, func(s snapshot.ConfigMapSource) bool { return !slices.Contains(n.configMaps, s) })
}
