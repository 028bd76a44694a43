// Package file reads numbers from a document in a file.
//
// A file is read again when its bytes change, including when it is replaced by renaming or mounted
// from a ConfigMap; a file of more than 4 MiB is only read again after the interval. A missing file
// is an error of Read, not of New: it may be created later. The numbers are current while the file
// exists, regardless of its age.
//
// Write another file and rename it, so that Outboard never reads a partially written file.
package file
