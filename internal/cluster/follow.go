package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"outboard.dev/outboard/snapshot"
)

// Follow makes the Cluster watch Ledgers, if ledgers is true, what Dynamic Resource Allocation
// allocates, if devices is true, and these families of ConfigMaps, in addition to what it watches
// already. It returns when the View has them. Call it while Run runs. The error names what cannot
// be read, or was not read before ctx ended, and is not watched; Follow may be called again.
func (c *Cluster) Follow(ctx context.Context, ledgers, devices bool, sources []snapshot.ConfigMapSource) error {
	c.followMu.Lock()
	defer c.followMu.Unlock()
	o := &c.options
	sources = slices.DeleteFunc(slices.Clone(sources), func(s snapshot.ConfigMapSource) bool { return slices.Contains(o.ConfigMaps, s) })
	ledgers, devices = ledgers && !o.Ledgers, devices && !o.Devices
	switch {
	case !ledgers && !devices && len(sources) == 0:
		return nil
	case ledgers && c.ledgerClient == nil:
		return errors.New("cluster: Ledgers need Config, not Client")
	case c.ctx == nil || c.ctx.Err() != nil:
		return errors.New("cluster: Run is not running")
	}
	var errs []error
	follow := func(feeds ...*feed) bool {
		err := c.follow(ctx, feeds)
		errs = append(errs, err)
		return err == nil
	}
	if ledgers {
		o.Ledgers = follow(c.ledgerFeed())
	}
	if devices {
		o.Devices = follow(c.deviceFeeds()...)
	}
	for _, source := range sources {
		if follow(c.configMapFeed(source)) {
			o.ConfigMaps = append(slices.Clip(o.ConfigMaps), source)
		}
	}
	c.Publish()
	return errors.Join(errs...)
}

// follow runs the feeds, and waits until they are read.
func (c *Cluster) follow(ctx context.Context, feeds []*feed) (err error) {
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
	all := append(slices.Clone(*c.feeds.Load()), feeds...)
	c.feeds.Store(&all)
	return nil
}
