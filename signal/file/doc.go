// Package file reads numbers from a document in a file.
//
// A file is read again as soon as its bytes change, also when it is renamed over, or
// mounted from a ConfigMap; one of more than 4 MiB only when the interval has passed. A
// file that is not there is an error of the reading, not of New: it may come. What it
// says is true as long as it is there, however old it is.
//
// Whoever writes the file should write another and rename it, so that it is never read
// half written.
package file
