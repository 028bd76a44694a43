package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"outboard.dev/outboard/snapshot"
)

// resources are what a Cluster watches in addition to nodes, pods and disruption budgets.
type resources struct {
	followsLedgers bool
	followsDevices bool // with the claims of them
	configMaps     []snapshot.ConfigMapSource
}

// split returns the resources that are read together: Ledgers, devices, and the ConfigMaps of each namespace.
func (r resources) split() []resources {
	var parts []resources
	if r.followsLedgers {
		parts = append(parts, resources{followsLedgers: true})
	}
	if r.followsDevices {
		parts = append(parts, resources{followsDevices: true})
	}
	namespaces := map[string][]snapshot.ConfigMapSource{}
	for _, source := range r.configMaps {
		namespaces[source.Namespace] = append(namespaces[source.Namespace], source)
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		parts = append(parts, resources{configMaps: namespaces[namespace]})
	}
	return parts
}

// feedsOf returns the feeds of resources that are read together.
func (c *Cluster) feedsOf(r resources) ([]*resourceReflector, error) {
	switch {
	case r.followsLedgers:
		return []*resourceReflector{c.ledgerFeed()}, nil
	case r.followsDevices:
		return c.deviceFeeds()
	}
	return []*resourceReflector{c.configMapFeed(r.configMaps[0].Namespace, r.configMaps)}, nil
}

// Follow makes the Cluster watch Ledgers, if ledgers is true, what Dynamic Resource Allocation allocates, if devices is true, and these
// families of ConfigMaps, in addition to what it watches already. It returns when the View has them. Call it while Run runs.
// The error names what cannot be read, or was not read before ctx ended, and is not watched; Follow
// may be called again.
func (c *Cluster) Follow(ctx context.Context, ledgers, devices bool, sources []snapshot.ConfigMapSource) error {
	c.followMu.Lock()
	defer c.followMu.Unlock()
	more := resources{followsLedgers: ledgers && !c.followsLedgers, followsDevices: devices && !c.followsDevices}
	for _, source := range sources {
		if !slices.Contains(c.configMaps, source) {
			more.configMaps = append(more.configMaps, source)
		}
	}
	switch {
	case !more.followsLedgers && !more.followsDevices && len(more.configMaps) == 0:
		return nil
	case more.followsLedgers && c.ledgers == nil:
		return errors.New("cluster: Ledgers need Config, not Client")
	case c.ctx == nil || c.ctx.Err() != nil:
		return errors.New("cluster: Run is not running")
	}
	var errs []error
	for _, one := range more.split() {
		errs = append(errs, c.followOne(ctx, one))
	}
	c.state.publish()
	return errors.Join(errs...)
}

// followOne watches resources that are read together.
func (c *Cluster) followOne(ctx context.Context, more resources) (err error) {
	feeds, err := c.feedsOf(more)
	if err != nil {
		return err
	}
	following, stop := context.WithCancel(c.ctx)
	defer func() {
		if err != nil {
			stop()
		}
	}()
	for _, f := range feeds {
		c.running.Go(func() { f.run(following) })
	}
	for _, f := range feeds {
		for !f.read.Load() {
			if f.warning() == "" && ctx.Err() == nil && following.Err() == nil {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			return fmt.Errorf("not read from the API server: %s", cmp.Or(f.warning(), f.resource))
		}
	}
	all := append(slices.Clone(*c.reflectors.Load()), feeds...)
	c.reflectors.Store(&all)
	c.followsLedgers = c.followsLedgers || more.followsLedgers
	c.followsDevices = c.followsDevices || more.followsDevices
	c.configMaps = append(slices.Clip(c.configMaps), more.configMaps...)
	return nil
}

// unique returns a unique name for a feed: a namespace is watched twice if families of ConfigMaps
// in it are added.
func (c *Cluster) unique(resource string) string {
	var others []*resourceReflector
	if all := c.reflectors.Load(); all != nil {
		others = *all
	}
	name := resource
	for i := 2; slices.ContainsFunc(others, func(f *resourceReflector) bool { return f.resource == name }); i++ {
		name = fmt.Sprintf("%s (%d)", resource, i)
	}
	return name
}
