// Package filewatch detects when the bytes of a set of files change.
//
// It is for files that are replaced while a process runs: certificates, keys and configuration,
// mounted from Kubernetes Secrets and ConfigMaps (where a symbolic link named ..data is swapped),
// written in place, renamed over, deleted and created again, or kept on a network file system.
//
// It reads the files every second, because not every file system sends notifications, and only a
// difference in bytes counts as a change. All files of the set are read together, twice, so that a
// certificate is not paired with the key of its predecessor if the files are replaced between two
// reads.
package filewatch
