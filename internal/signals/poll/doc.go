// Package poll reads the sources of signals repeatedly, drops numbers that do not count,
// marks numbers that are stale, and publishes the result as signals of the View.
package poll
