// Package certs creates the certificates that a scheduler and its extender need to trust each other: an authority, a
// server certificate for the extender, and client certificates for its callers, all as PEM with ECDSA P-256 keys.
//
// It is for clusters without a certificate manager, for demonstrations and for tests. A [Set] keeps them in
// a directory. Nothing here reads a configuration or keeps a list of what was issued.
package certs
