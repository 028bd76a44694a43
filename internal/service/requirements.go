package service

import (
	"slices"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// requirements are what the policies of a configuration read from the cluster in addition to nodes,
// pods and disruption budgets.
type requirements struct {
	ledgers    bool
	devices    bool // of Dynamic Resource Allocation
	configMaps []snapshot.ConfigMapSource
	history    bool // of the pods that arrived and ended; recording it can start at any time
}

func requirementsOf(c *config.Config) requirements {
	var r requirements
	for i := range c.Profiles {
		for _, m := range c.Profiles[i].Policies {
			if _, ok := m.Policy.(policy.Reserver); ok {
				r.ledgers = true
			}
			reader, ok := m.Policy.(policy.InputReader)
			if !ok {
				continue
			}
			inputs := reader.Inputs()
			r.history, r.devices = r.history || inputs.History, r.devices || inputs.Devices
			for _, source := range inputs.ConfigMaps {
				if !slices.Contains(r.configMaps, source) {
					r.configMaps = append(r.configMaps, source)
				}
			}
		}
	}
	return r
}

// none reports whether the policies read requests and signals only.
func (r requirements) none() bool {
	return !r.ledgers && !r.devices && len(r.configMaps) == 0 && !r.history
}
