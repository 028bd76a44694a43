// Package browser tests the page in a real Chromium: against a real cluster, and against fixtures for states and sizes that a test cannot
// give a real one.
package browser
