package cluster_test

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/cluster"
)

func TestNew(t *testing.T) {
	if _, err := cluster.New(cluster.Options{}); err == nil || !strings.Contains(err.Error(), "neither Config nor Client") {
		t.Errorf("without a client: %v", err)
	}
	if _, err := cluster.New(cluster.Options{Config: &rest.Config{Host: "http://x y"}}); err == nil {
		t.Error("New accepts an invalid host")
	}
	registry := prometheus.NewRegistry()
	o := cluster.Options{Client: fake.NewClientset(), Registerer: registry}
	c, err := cluster.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.New(o); err == nil {
		t.Error("New registered the metrics twice")
	}
	if v := c.View(); v == nil || v.Len() != 0 {
		t.Errorf("got view %v before Run", v)
	}
	if err := c.Synced(); err == nil || err.Error() != "not read from the API server yet: nodes, pods, poddisruptionbudgets" {
		t.Errorf("Synced before Run: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Run(ended); err != nil {
		t.Error(err)
	}
	if err := c.Run(ended); err == nil {
		t.Error("a second call of Run returned no error")
	}
}
