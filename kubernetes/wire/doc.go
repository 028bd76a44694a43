// Package wire has calls of kube-scheduler to extenders as data, with which authors of other
// extenders can test theirs: README.md.
package wire
