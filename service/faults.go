//go:build !chaos

package service

import (
	"outboard.dev/outboard/cluster"
	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/ledger"
)

// With the build tag chaos, which only test/chaos uses, these functions add layers that fail at a given moment.

// BindingCluster is the cluster that binders use.
type BindingCluster = *cluster.Cluster

func toCluster(c *cluster.Cluster) BindingCluster { return c }

func toLedgers(l engine.Ledgers) engine.Ledgers { return l }

func toAPI(a ledger.API) ledger.API { return a }
