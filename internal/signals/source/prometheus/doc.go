// Package prometheus reads the result of an instant query from a Prometheus server, or from any
// server with its HTTP API.
//
// The query returns a vector or a scalar. The configured label of a series is the node or the key;
// series without it are left out. The time is that of the sample, which for an instant query is the
// time of the evaluation. A series that is stale in Prometheus is not in the result. Without a
// label the query must return one number.
//
// The query limits the number of series. The response is decoded while it is read: if it has more
// series, or is too long, it is rejected there.
package prometheus
