// Package e2e holds tests in which an unmodified kube-scheduler places pods on a real API server,
// with `outboard serve` as a separate process: those that each change must pass. test/nightly has
// the others.
package e2e

import (
	"testing"

	"outboard.dev/outboard/test/theater"
)

func TestMain(m *testing.M) { theater.Main(m) }
