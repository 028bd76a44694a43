// Package content reads numbers out of documents: JSON, YAML, CSV, and what lmstat
// prints.
//
// A JSON or YAML document is a mapping of keys to numbers, or holds one number
// somewhere, or items of which each has a key and a number; where they are is said in
// JSONPath (the dialect of kubectl, without range and without ..). In CSV the first
// line names the columns.
//
// A number is a JSON number, true (1) or false (0), or a string: as Go writes
// floating-point numbers ("0.25", "1e9"), or a decimal number with a suffix of
// Kubernetes quantities ("500m" is 0.5, "16Gi" is 17179869184). NaN and Inf are passed
// on. What has no number (null, "", no such field) or no key is left out; anything
// else, or items of which none is left, is an error.
//
// YAML is read as strictly as the configuration file, and may be 1 MiB long; what is
// also JSON may be as long as the limits say.
package content
