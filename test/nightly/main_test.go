// Package nightly holds tests like those of test/e2e that take longer, or repeat with a real
// kube-scheduler what is also tested without one.
package nightly

import (
	"testing"

	"outboard.dev/outboard/test/theater"
)

func TestMain(m *testing.M) { theater.Main(m) }
