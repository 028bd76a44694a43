package decision_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"outboard.dev/outboard/decision"
)

func numbered(n int) *decision.Record { return &decision.Record{Asked: n, Verb: verb(n)} }

func verb(n int) decision.Verb {
	if n%3 == 0 {
		return "prioritize"
	}
	return "filter"
}

func numbers(records []*decision.Record) []int {
	ns := []int{}
	for _, r := range records {
		ns = append(ns, r.Asked)
	}
	return ns
}

func anything(*decision.Record) bool { return true }

// Find gives what filtering a plain list of the latest records, latest first,
// gives.
func TestLogFind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 10).Draw(t, "size")
		log := decision.NewLog(size)
		var latest []int // latest first
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				n := rapid.IntRange(0, 100).Draw(t, "record")
				log.Add(numbered(n))
				latest = slices.Insert(latest, 0, n)
				latest = latest[:min(size, len(latest))]
			},
			"find": func(t *rapid.T) {
				limit := rapid.IntRange(-1, 12).Draw(t, "limit")
				want := []int{}
				for _, n := range latest {
					if verb(n) == "filter" && len(want) < limit {
						want = append(want, n)
					}
				}
				got := numbers(log.Find(func(r *decision.Record) bool { return r.Verb == "filter" }, limit))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("found (-want +got):\n%s", diff)
				}
			},
		})
	})
}

func TestLogSize(t *testing.T) {
	for _, tt := range []struct{ size, want int }{{1, 1}, {7, 7}, {0, decision.DefaultLogSize}, {-5, decision.DefaultLogSize}} {
		log := decision.NewLog(tt.size)
		for n := range 2*decision.DefaultLogSize + 3 {
			log.Add(numbered(n))
		}
		found := log.Find(anything, 1<<30)
		if len(found) != tt.want || found[0].Asked != 2*decision.DefaultLogSize+2 {
			t.Errorf("a log of size %d holds %d records, the latest being %d", tt.size, len(found), found[0].Asked)
		}
	}
}

// Many add and find at once. What each of them added is found in its order at any
// time, and in the end the log is full.
func TestLogConcurrent(t *testing.T) {
	const adders, each, size = 8, 2000, 64
	log := decision.NewLog(size)
	var adding, finding sync.WaitGroup
	done := make(chan struct{})
	for a := range adders {
		adding.Go(func() {
			for n := range each {
				log.Add(&decision.Record{Profile: fmt.Sprint(a), Asked: n})
			}
		})
	}
	for range 2 {
		finding.Go(func() {
			for {
				checkOrder(t, log, size)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	adding.Wait()
	close(done)
	finding.Wait()
	if got := len(log.Find(anything, size+1)); got != size {
		t.Errorf("in the end the log holds %d records, want %d", got, size)
	}
	checkOrder(t, log, size)
	latest := log.Find(anything, 1)[0]
	if latest.Asked != each-1 {
		t.Errorf("the latest record is number %d of its adder, want its last", latest.Asked)
	}
}

func checkOrder(t *testing.T, log *decision.Log, size int) {
	last := map[string]int{}
	found := log.Find(anything, size)
	for _, r := range found {
		if previous, ok := last[r.Profile]; ok && r.Asked >= previous {
			t.Errorf("record %d of adder %s comes after %d: not the latest first", r.Asked, r.Profile, previous)
		}
		last[r.Profile] = r.Asked
	}
}
