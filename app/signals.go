package app

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/kubernetes"

	"outboard.dev/outboard/cluster"
	"outboard.dev/outboard/config"
	"outboard.dev/outboard/explain"
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/signal/configmap"
	filesignal "outboard.dev/outboard/signal/file"
	"outboard.dev/outboard/signal/httpdoc"
	"outboard.dev/outboard/signal/metricsapi"
	"outboard.dev/outboard/signal/nodes"
	"outboard.dev/outboard/signal/prometheus"
	"outboard.dev/outboard/signal/remote"
	"outboard.dev/outboard/snapshot"
)

// followed makes the sources that the configuration asks for. They read nothing yet.
func followed(c *config.Config, live *cluster.Cluster) ([]signal.Followed, error) {
	var all []signal.Followed
	for _, s := range c.Signals {
		source, err := newSource(s, c.Cluster, live)
		if err != nil {
			for _, made := range all {
				if closer, ok := made.Source.(io.Closer); ok {
					closer.Close() // it was never read
				}
			}
			return nil, fmt.Errorf("signal %s: %w", s.Name, err)
		}
		all = append(all, signal.Followed{Config: s, Source: source})
	}
	return all, nil
}

// newSource makes the one source of the signal, whose configuration is valid.
func newSource(s config.Signal, c config.Cluster, live *cluster.Cluster) (signal.Source, error) {
	switch {
	case s.Nodes != nil:
		return nodes.New(*s.Nodes, live.View), nil
	case s.Metrics != nil:
		client, err := clientConfig(c)
		if err != nil {
			return nil, err
		}
		return metricsapi.New(*s.Metrics, client)
	case s.Cluster != nil:
		return remote.New(*s.Cluster), nil
	case s.File != nil:
		return filesignal.New(*s.File)
	case s.Prometheus != nil:
		return prometheus.New(*s.Prometheus)
	case s.HTTP != nil:
		return httpdoc.New(*s.HTTP)
	}
	client, err := clientConfig(c)
	if err != nil {
		return nil, err
	}
	clientset, err := kubernetes.NewForConfig(client)
	if err != nil {
		return nil, err
	}
	return configmap.New(clientset.CoreV1().ConfigMaps(s.ConfigMap.Namespace), *s.ConfigMap)
}

// columns are Views of outside facts alone, for judging from the request without a
// cluster.
type columns struct {
	mu      sync.Mutex
	builder snapshot.Builder
	view    atomic.Pointer[snapshot.View]
}

func newColumns() *columns {
	c := &columns{}
	c.view.Store(c.builder.View())
	return c
}

// SetColumn publishes the column.
func (c *columns) SetColumn(column *snapshot.Column) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.builder.SetColumn(column)
	c.view.Store(c.builder.View())
}

// DeleteColumn leaves the column out from now on.
func (c *columns) DeleteColumn(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.builder.DeleteColumn(name)
	c.view.Store(c.builder.View())
}

// View is what is known now.
func (c *columns) View() *snapshot.View { return c.view.Load() }

// explained is how the signals stand, for people.
func explained(m *signal.Manager) []explain.Signal {
	var all []explain.Signal
	for _, s := range m.Statuses() {
		e := explain.Signal{Name: s.Name, Values: s.Values, Stale: s.Stale, Newest: s.Newest}
		if s.Err != nil {
			e.Error = s.Err.Error()
		}
		all = append(all, e)
	}
	return all
}
