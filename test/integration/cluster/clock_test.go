package cluster_test

import (
	"testing"
	"time"

	"outboard.dev/outboard/internal/cluster"
)

// The API server of this test is on this machine: both have the same time.
func TestClockIsTheAPIServers(t *testing.T) {
	cp, _ := sharedServer(t)
	c := synced(t, cluster.Options{Config: cp.AdminConfig()})
	earliest, now, latest := c.Clock().Earliest(), time.Now(), c.Clock().Latest()
	if earliest.After(now) || latest.Before(now) {
		t.Errorf("the time is %v, and the clock returns %v to %v", now, earliest, latest)
	}
	if !earliest.Before(latest) {
		t.Error("the clock did not use the API server's responses")
	}
}
