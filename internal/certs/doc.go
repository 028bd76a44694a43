// Package certs creates the certificates that a scheduler and its extender need to trust each
// other: an authority, a server certificate for the extender, and client certificates for its
// callers, all as PEM with ECDSA P-256 keys.
//
// It is for clusters without a certificate manager, for demonstrations and for tests. A [Set] has
// the certificates as files of a directory. The package reads no configuration, and keeps no list
// of issued certificates.
package certs
