package cluster_test

import (
	"testing"
	"time"

	"outboard.dev/outboard/cluster"
)

// The API server here is on this machine: its time is ours.
func TestClockIsTheAPIServers(t *testing.T) {
	cp, _ := sharedServer(t)
	c := synced(t, cluster.Options{Config: cp.AdminConfig()})
	earliest, now, latest := c.Clock().Earliest(), time.Now(), c.Clock().Latest()
	if earliest.After(now) || latest.Before(now) {
		t.Errorf("it is %v, and the clock says %v to %v", now, earliest, latest)
	}
	if !earliest.Before(latest) {
		t.Error("nothing was learned from the API server's answers")
	}
}
