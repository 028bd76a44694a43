//go:build !chaos

package service

import (
	"outboard.dev/outboard/cluster"
	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/ledger"
)

// With the tag chaos, which nothing but test/chaos builds with, these functions put
// something in between that fails at a given moment.

// BindingCluster is the cluster, for what binds pods.
type BindingCluster = *cluster.Cluster

func toCluster(c *cluster.Cluster) BindingCluster { return c }

func toLedgers(l engine.Ledgers) engine.Ledgers { return l }

func toAPI(a ledger.API) ledger.API { return a }
