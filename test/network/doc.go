// Package network holds a test of what happens to pods when the network between kube-scheduler and
// Outboard, or between Outboard and the API server, fails in a certain way. Toxiproxy is the network
// that fails. The tables of docs/operations.md say what the test expects.
//
// It is a separate module, so that importers of Outboard do not depend on Toxiproxy.
package network
