// Package configmap reads numbers from a document in a ConfigMap of Outboard's own cluster: see
// package internal/content. It gets this one object in each interval and watches nothing, so it
// only needs the permission to get it. The numbers are current while the ConfigMap exists.
package configmap
