// Package format reads numbers from documents in YAML or JSON.
//
// A document is a mapping of keys to numbers, or has one number somewhere, or items with a key and
// a number each. JSONPath expressions (kubectl's dialect, without range and without ..) select
// these.
//
// A number is a JSON number, true (1) or false (0), or a string that [signal.ParseNumber] accepts.
// NaN and Inf are passed on. Items without a number (null, "", no such field) or without a key are
// left out; anything else, or a document whose items are all left out, is an error.
//
// YAML is read as strictly as the configuration file, and may have 1 MiB; a document that is also
// JSON may be as long as the limits permit.
package format
