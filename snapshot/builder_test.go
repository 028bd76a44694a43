package snapshot_test

import (
	"testing"

	"outboard.dev/outboard/snapshot"
)

func TestZeroView(t *testing.T) {
	var v snapshot.View
	rows := []int32{0}
	v.Find(rows, func(int) []byte { return []byte("a") })
	if v.Len() != 0 || v.Rows() != 0 || v.Generation() != 0 || v.Node("a") != nil || v.At(0) != nil ||
		rows[0] != -1 || show(&v) != "" {
		t.Error("the zero View is not empty")
	}
}
