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

// resources are what a Cluster follows beside nodes, pods and disruption budgets.
type resources struct {
	followsLedgers bool
	configMaps     []snapshot.ConfigMapSource
}

// split returns the resources that have a feed each: Ledgers, and the ConfigMaps of each
// namespace.
func (r resources) split() []resources {
	var parts []resources
	if r.followsLedgers {
		parts = append(parts, resources{followsLedgers: true})
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

// feedOf returns the feed of resources that have one.
func (c *Cluster) feedOf(r resources) *resourceReflector {
	if r.followsLedgers {
		return c.ledgerFeed()
	}
	return c.configMapFeed(r.configMaps[0].Namespace, r.configMaps)
}

// Follow makes the Cluster follow Ledgers, if ledgers is true, and these families of
// ConfigMaps beside what it follows already, and returns when the View holds them. It is
// called while Run runs. The error says what cannot be read, or was not before ctx ended,
// and is not followed; it may be called again.
func (c *Cluster) Follow(ctx context.Context, ledgers bool, sources []snapshot.ConfigMapSource) error {
	c.followMu.Lock()
	defer c.followMu.Unlock()
	more := resources{followsLedgers: ledgers && !c.followsLedgers}
	for _, source := range sources {
		if !slices.Contains(c.configMaps, source) {
			more.configMaps = append(more.configMaps, source)
		}
	}
	switch {
	case !more.followsLedgers && len(more.configMaps) == 0:
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

// followOne follows what is one feed.
func (c *Cluster) followOne(ctx context.Context, more resources) error {
	f := c.feedOf(more)
	following, stop := context.WithCancel(c.ctx)
	c.running.Go(func() { f.run(following) })
	for !f.read.Load() {
		if f.warning() == "" && ctx.Err() == nil && following.Err() == nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		stop()
		return fmt.Errorf("not read from the API server: %s", cmp.Or(f.warning(), f.resource))
	}
	context.AfterFunc(c.ctx, stop)
	feeds := append(slices.Clone(*c.reflectors.Load()), f)
	c.reflectors.Store(&feeds)
	c.followsLedgers = c.followsLedgers || more.followsLedgers
	c.configMaps = append(slices.Clip(c.configMaps), more.configMaps...)
	return nil
}

// unique returns a name for a feed that no other has: a namespace is followed twice if
// families of ConfigMaps in it are added.
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
