package app

import (
	"runtime/debug"
	"testing"
)

func TestCollectGarbage(t *testing.T) {
	for _, tt := range []struct {
		gogc, limit string
		want        int
	}{
		{"", "", 50},
		{"200", "", 100},
		{"", "1GiB", 100},
	} {
		t.Setenv("GOGC", tt.gogc)
		t.Setenv("GOMEMLIMIT", tt.limit)
		before := debug.SetGCPercent(100)
		collectGarbage()
		if got := debug.SetGCPercent(before); got != tt.want {
			t.Errorf("GOGC=%q GOMEMLIMIT=%q: %d %%, want %d", tt.gogc, tt.limit, got, tt.want)
		}
	}
}
