// Package prometheus reads the result of an instant query from a Prometheus server, or
// from anything that has its HTTP API.
//
// The query gives a vector or a scalar. Of a series, the label that the configuration
// names is the node or the key, and a series without it is left out; the time is that
// of the sample, which for an instant query is the time of the evaluation. A series
// that went stale in Prometheus is not in the result. Without a label the query must
// give one number.
//
// The server is asked for no more series than there may be. One that sends more all the
// same is refused before they are decoded, and one whose answer is too long while it is
// read.
package prometheus
