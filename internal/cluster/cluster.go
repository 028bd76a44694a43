package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/internal/throttle"
	"outboard.dev/outboard/snapshot"
)

// Options configure a Cluster. Config or Client is required.
type Options struct {
	// Config is the connection to the API server. New copies it, and replaces its rate limits and
	// content type.
	Config *rest.Config
	// QPS and Burst limit the Bindings and, on their own, the requests about Ledgers, to protect
	// the API server from a scheduler that binds too many pods. Each has its own limit, so that
	// allocations can be released while Bindings wait. Other requests are few: nothing is read in a
	// loop. Defaults: 200 and 400. A negative QPS means no limit.
	QPS   float32
	Burst int
	// Client replaces Config in tests. Only with Config does the Cluster detect that the API server
	// was unreachable, and that a response with Retry-After leaves the outcome of a Binding open.
	Client kubernetes.Interface

	// Informers are those of another component of the process that watches nodes, pods and
	// disruption budgets. New adds handlers to them, so that nothing is watched twice. Their owner
	// runs them. Nil: the Cluster watches these resources itself.
	Informers informers.SharedInformerFactory

	// Ledgers makes the Cluster watch Ledgers, too. It needs Config.
	Ledgers bool
	// Devices makes the Cluster watch what Dynamic Resource Allocation allocates: ResourceSlices,
	// ResourceClaims, DeviceClasses and DeviceTaintRules.
	Devices bool
	// ConfigMaps are the families of ConfigMaps to watch. Follow adds to Ledgers, Devices and
	// ConfigMaps.
	ConfigMaps []snapshot.ConfigMapSource

	// Logger is slog.Default() if nil.
	Logger *slog.Logger
	// Registerer receives the metrics. Nil: none.
	Registerer prometheus.Registerer

	// BindTimeout bounds one attempt to write a Binding, in addition to the context of Bind.
	// Default 10 s.
	BindTimeout time.Duration
	// LookupTimeout bounds reading one pod from the API server, for Bind. The context of Bind does
	// not shorten it, because the outcome of a Binding must be found even if that context has
	// ended. Default 2 s.
	LookupTimeout time.Duration
	// ThrottleTimeout bounds how long Throttle waits for the rate limit. Default 1 s, a part of
	// kube-scheduler's httpTimeout. Negative: callers wait as long as their contexts last.
	ThrottleTimeout time.Duration
}

const (
	// confirmAfter is how long the Cluster counts a pod as bound after Bind without an event of the
	// watch; then it reads the pod from the API server.
	confirmAfter = 15 * time.Second
	// publishInterval is the minimum time between two Views, except for those that Bind publishes.
	publishInterval = 5 * time.Millisecond
)

func (o *Options) setDefaults() {
	o.QPS, o.Burst = cmp.Or(o.QPS, 200), cmp.Or(o.Burst, 400)
	o.BindTimeout = cmp.Or(o.BindTimeout, 10*time.Second)
	o.LookupTimeout = cmp.Or(o.LookupTimeout, 2*time.Second)
	o.ThrottleTimeout = cmp.Or(o.ThrottleTimeout, time.Second)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
}

// Cluster is a connection to a Kubernetes cluster. Its methods are safe for concurrent use.
type Cluster struct {
	*State
	options      Options
	client       kubernetes.Interface
	limiter      *rate.Limiter // of Bindings
	ledgerClient *ledgerClient // nil with Options.Client
	feeds        atomic.Pointer[[]*feed]
	metrics      *metrics
	clock        *ledger.Clock
	failures     atomic.Uint64 // requests without a response of the API server, as counted by the transport
	denials      denials
	warnings     throttle.Log
	started      atomic.Bool

	followMu sync.Mutex      // guards what options say about what to follow
	ctx      context.Context // of Run; nil before Run
	running  sync.WaitGroup  // what Run waits for
}

// New returns a Cluster that has no data until Run is called. It sends no request.
func New(o Options) (*Cluster, error) {
	o.setDefaults()
	if o.Client == nil && o.Config == nil {
		return nil, errors.New("cluster: neither Config nor Client is given")
	}
	if o.Ledgers && o.Client != nil {
		return nil, errors.New("cluster: Ledgers needs Config, not Client")
	}
	c := &Cluster{options: o, client: o.Client, State: NewState(), limiter: newLimiter(o.QPS, o.Burst), clock: ledger.NewClock(nil), metrics: newMetrics()}
	if c.client == nil {
		var err error
		if c.client, err = c.newClient(o); err != nil {
			return nil, fmt.Errorf("cluster: %w", err)
		}
	}
	feeds := []*feed{c.nodeFeed(), c.podFeed(), c.budgetFeed()}
	if o.Ledgers {
		feeds = append(feeds, c.ledgerFeed())
	}
	if o.Devices {
		feeds = append(feeds, c.deviceFeeds()...)
	}
	for _, source := range o.ConfigMaps {
		feeds = append(feeds, c.configMapFeed(source))
	}
	c.feeds.Store(&feeds)
	c.metrics.read(c)
	if o.Registerer != nil {
		if err := o.Registerer.Register(c.metrics.registry); err != nil {
			return nil, fmt.Errorf("cluster: %w", err)
		}
	}
	return c, nil
}

func (c *Cluster) newClient(o Options) (kubernetes.Interface, error) {
	config := rest.CopyConfig(o.Config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS, config.Burst, config.RateLimiter = o.QPS, o.Burst, nil
	if config.UserAgent == "" {
		config.UserAgent = "outboard"
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{next, &c.failures, c.clock} })
	var err error
	if c.ledgerClient, err = newLedgerClient(config); err != nil {
		return nil, err
	}
	config.QPS = -1 // see Throttle
	return kubernetes.NewForConfig(config)
}

// completed is called when a resource was listed for the first time.
func (c *Cluster) completed() {
	for _, f := range *c.feeds.Load() {
		if !f.read.Load() {
			return
		}
	}
	c.SetComplete()
}

// Run watches the cluster until ctx ends, and then returns nil once everything that it started has
// ended. Call it once. After it, View returns the last View, and Bind keeps working. Run retries
// failed requests forever: see Synced.
func (c *Cluster) Run(ctx context.Context) error {
	if c.started.Swap(true) {
		return errors.New("cluster: Run was called twice")
	}
	ctx = klog.NewContext(ctx, logr.Discard()) // client-go logs each retry; feeds log failures once, with their meaning
	c.followMu.Lock()
	c.ctx = ctx
	for _, f := range *c.feeds.Load() {
		c.running.Go(func() { f.run(ctx) })
	}
	c.followMu.Unlock()
	c.running.Go(func() { c.publish(ctx) })
	c.running.Go(func() { c.confirm(ctx) })
	<-ctx.Done()
	c.followMu.Lock() // start nothing more
	defer c.followMu.Unlock()
	c.running.Wait()
	return nil
}

// publish publishes changes as Views: a change after a pause immediately, and those that follow it
// together after the interval. If creating a View takes long, because nodes come and go, the pause
// after it is longer in proportion.
func (c *Cluster) publish(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		}
		start := time.Now()
		c.Publish()
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(publishInterval, 4*time.Since(start))):
		}
	}
}

// confirm reads pods from the API server that the watch should have shown as bound.
func (c *Cluster) confirm(ctx context.Context) {
	ticker := time.NewTicker(confirmAfter / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for _, assumed := range c.Unconfirmed(now.Add(-confirmAfter)) {
				pod, err := c.lookup(ctx, assumed.Namespace, assumed.Name, assumed.UID)
				if err != nil {
					break // the API server is unreachable; the pods still count as bound
				}
				c.Confirm(assumed, pod, time.Now())
			}
		}
	}
}

// Clock returns the API server's time. Without Config it is this process's own.
func (c *Cluster) Clock() *ledger.Clock { return c.clock }

// WaitForSync waits until Synced returns nil. The error is that of ctx.
func (c *Cluster) WaitForSync(ctx context.Context) error {
	for c.Synced() != nil {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// Synced returns nil once nodes, pods and disruption budgets have all been read and View shows
// them, and from then on. Until then the error names what is missing, and the reason if a request
// failed.
func (c *Cluster) Synced() error {
	var missing []string
	for _, f := range *c.feeds.Load() {
		if f.read.Load() {
			continue
		}
		missing = append(missing, cmp.Or(f.warning(), f.resource))
	}
	if len(missing) > 0 {
		return fmt.Errorf("not read from the API server yet: %s", strings.Join(missing, ", "))
	}
	if c.View().Generation() == 0 {
		return errors.New("everything was read from the API server, and the first view is not published yet")
	}
	return nil
}

// Warnings returns a line for each resource that was read before and cannot be read now, so that
// the View may be outdated; and one for each kind of write that the API server denies.
func (c *Cluster) Warnings() []string {
	lines := c.denials.lines()
	for _, f := range *c.feeds.Load() {
		if text := f.warning(); text != "" && f.read.Load() {
			lines = append(lines, "cluster: "+text)
		}
	}
	return lines
}
