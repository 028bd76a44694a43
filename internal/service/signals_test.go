package service

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/signal"
)

// watchfulSource reports whether the cache was synced at its first reading.
type watchfulSource struct {
	live  *cluster.Cluster
	once  sync.Once
	first chan error
}

func (s *watchfulSource) Read(context.Context, signal.Limits) ([]signal.Sample, error) {
	s.once.Do(func() { s.first <- s.live.Synced() })
	return nil, nil
}

// The API server's time determines the time of readings, and is unknown before the cache is synced.
func TestSignalsAreReadWhenTheClusterHasBeenRead(t *testing.T) {
	live, err := cluster.New(cluster.Options{Client: fake.NewClientset(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	source := &watchfulSource{live: live, first: make(chan error, 1)}
	types := standardTypes()
	types.Signals = append(types.Signals, signal.TypeOf("watchful", func() struct{} { return struct{}{} },
		func(struct{}) (signal.Spec, error) {
			return signal.Spec{About: policy.AboutKeys, Open: func(*rest.Config) (signal.Source, error) { return source, nil }}, nil
		}))
	s := newService(t, "test", header+"signals: [{name: s, watchful: {}}]\nprofiles: [{policies: [{type: ImageLocality}]}]\n", types, Connection{Cluster: live}, new(bytes.Buffer))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { s.readSignals(ctx) })
	time.Sleep(50 * time.Millisecond) // enough time for a reading that does not wait
	running.Go(func() { _ = live.Run(ctx) })
	if err := <-source.first; err != nil {
		t.Errorf("the service reads a signal although %v", err)
	}
}
