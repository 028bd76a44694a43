package decision_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/decision"
)

func numbered(n int) *decision.Record {
	return &decision.Record{Time: time.Unix(int64(n), 0), Nodes: n, Pod: decision.Pod{Namespace: "ns", Name: "p", UID: "u"}}
}

// boundPod is the pod of numbered.
var boundPod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}

func numbers(records []*decision.Record) []int {
	ns := []int{}
	for _, r := range records {
		ns = append(ns, r.Nodes)
	}
	return ns
}

// everything finds all records of numbered.
var everything = decision.Query{Namespace: "ns", Name: "p", Limit: 1 << 30}

// Find returns the same as a filter over a plain list of the latest records, latest first.
func TestLogFind(t *testing.T) {
	few := rapid.IntRange(0, 2)
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 10).Draw(t, "size")
		log := decision.NewLog(size)
		var latest []*decision.Record // latest first
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				r := &decision.Record{
					Nodes: rapid.IntRange(0, 100).Draw(t, "record"), Profile: fmt.Sprint("/", few.Draw(t, "profile")),
					Pod: decision.Pod{Namespace: "ns", Name: fmt.Sprint(few.Draw(t, "pod")), UID: fmt.Sprint(few.Draw(t, "uid"))},
				}
				log.Add(r, nil)
				latest = slices.Insert(latest, 0, r)
				latest = latest[:min(size, len(latest))]
			},
			"find": func(t *rapid.T) {
				q := decision.Query{Namespace: "ns", Name: fmt.Sprint(few.Draw(t, "pod")), Limit: rapid.IntRange(-1, 12).Draw(t, "limit")}
				if rapid.Bool().Draw(t, "by UID") {
					q.UID = fmt.Sprint(few.Draw(t, "uid"))
				}
				want := []*decision.Record{}
				for _, r := range latest {
					if r.Pod.Name == q.Name && (q.UID == "" || r.Pod.UID == q.UID) && len(want) < q.Limit {
						want = append(want, r)
					}
				}
				if got := log.Find(q); !slices.Equal(got, want) {
					t.Fatalf("%+v found %v, want %v", q, numbers(got), numbers(want))
				}
			},
		})
	})
}

func TestLogSize(t *testing.T) {
	for _, tt := range []struct{ size, want int }{{1, 1}, {7, 7}, {0, decision.DefaultLogSize}, {-5, decision.DefaultLogSize}} {
		log := decision.NewLog(tt.size)
		for n := range 2*decision.DefaultLogSize + 3 {
			log.Add(numbered(n), nil)
		}
		found := log.Find(everything)
		if len(found) != tt.want || found[0].Nodes != 2*decision.DefaultLogSize+2 {
			t.Errorf("a log of size %d holds %d records, the latest being %d", tt.size, len(found), found[0].Nodes)
		}
		if !log.Since().Equal(found[tt.want-1].Time) {
			t.Errorf("a log of size %d has all records since %s", tt.size, log.Since())
		}
	}
}

// Concurrent adders and readers find the records of each adder in its order at any time, and in the
// end the log is full.
func TestLogConcurrent(t *testing.T) {
	const adders, each, size = 8, 2000, 64
	log := decision.NewLog(size)
	var adding, finding sync.WaitGroup
	done := make(chan struct{})
	for a := range adders {
		adding.Go(func() {
			for n := range each {
				r := numbered(n)
				r.Profile, r.Top = fmt.Sprint(a), make([]decision.ScoredNode, 1)
				log.Add(r, scoresOf(2))
			}
		})
	}
	for range 2 {
		finding.Go(func() {
			for {
				checkOrder(t, log)
				log.Why(boundPod, "0", "node-1")
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
	if got := len(log.Find(everything)); got != size {
		t.Errorf("in the end the log holds %d records, want %d", got, size)
	}
	checkOrder(t, log)
	latest := log.Find(everything)[0]
	if latest.Nodes != each-1 {
		t.Errorf("the latest record is number %d of its adder, want its last", latest.Nodes)
	}
}

func checkOrder(t *testing.T, log *decision.Log) {
	last := map[string]int{}
	for _, r := range log.Find(everything) {
		if previous, ok := last[r.Profile]; ok && r.Nodes >= previous {
			t.Errorf("record %d of adder %s comes after %d: not the latest first", r.Nodes, r.Profile, previous)
		}
		last[r.Profile] = r.Nodes
	}
}

// scoresOf returns the scores of nodes by two policies: node-i has the total 3×(i mod 10).
func scoresOf(nodes int) *decision.Scores {
	s := &decision.Scores{Policies: []decision.Policy{{Name: "A", Weight: 1}, {Name: "B", Weight: 2}}}
	for i := range nodes {
		part := uint8(i % 10)
		s.Nodes, s.Totals, s.Parts = append(s.Nodes, fmt.Sprint("node-", i)), append(s.Totals, 3*int32(part)), append(s.Parts, part)
	}
	s.Parts = append(s.Parts, s.Parts...)
	return s
}

func scoredRecord(nodes int) *decision.Record {
	r := numbered(nodes)
	r.Verb, r.MaxTotal, r.Top = "prioritize", 300, []decision.ScoredNode{{Node: "node-9", Total: 27}}
	return r
}

// The latest record with scores shows the score of the chosen node, whether it is among the best or
// not, and compares it with all others.
func TestChosen(t *testing.T) {
	log := decision.NewLog(0)
	older, latest := scoredRecord(63), scoredRecord(63)
	for _, r := range []*decision.Record{older, latest} {
		log.Add(r, scoresOf(63))
	}
	log.Add(numbered(1), nil)
	q := everything
	if found := log.Find(q); found[1] != latest || found[1].Chosen != nil {
		t.Errorf("without a node, %+v is chosen", found[1].Chosen)
	}
	q.Node = "node-42"
	want := &decision.ChosenNode{
		ScoredNode: decision.ScoredNode{Node: "node-42", Total: 6, Scores: []decision.Score{
			{Policy: "A", Score: 2, Weight: 1}, {Policy: "B", Score: 2, Weight: 2},
		}},
		Better: 42, // the nodes with i mod 10 from 3 to 9, six of each
		Equal:  6,
	}
	for range 2 {
		found := log.Find(q)
		if diff := cmp.Diff(want, found[1].Chosen); diff != "" || found[2] != older || latest.Chosen != nil {
			t.Fatalf("%v: chosen (-want +got):\n%s", numbers(found), diff)
		}
		log.Why(boundPod, "", q.Node)
	}
	q.Node = ""
	if got := log.Find(q)[1].Chosen; got == nil || got.Node != "node-42" {
		t.Errorf("the chosen node is %+v", got)
	}
	q.Node = "elsewhere"
	if got := log.Find(q)[1].Chosen; got == nil || got.Node != "node-42" {
		t.Errorf("for a node without a score, the chosen node is %+v", got)
	}
}

// A node has the maximum total if the pod holds an allocation there, and only then.
func TestChosenHoldsAllocation(t *testing.T) {
	for _, allocated := range []bool{false, true} {
		for node, total := range map[string]int32{"full": 300, "less": 299} {
			log := decision.NewLog(0)
			log.Add(scoredRecord(1), &decision.Scores{Nodes: []string{node}, Totals: []int32{total}, Allocated: allocated})
			q := everything
			q.Node = node
			if got := log.Find(q)[0].Chosen; got.HoldsAllocation != (allocated && total == 300) {
				t.Errorf("%s, allocations %t: %+v", node, allocated, got)
			}
		}
	}
}

// The memory for scores is bounded: the log keeps the latest scores.
func TestScoresAreBounded(t *testing.T) {
	const nodes, calls = 50_000, 100
	log := decision.NewLog(0)
	shared := scoresOf(nodes)
	for i := range calls {
		r := scoredRecord(nodes)
		r.Pod.Name = fmt.Sprint(i)
		log.Add(r, shared)
	}
	known := 0
	for i := range calls {
		found := log.Find(decision.Query{Namespace: "ns", Name: fmt.Sprint(i), Node: "node-7", Limit: 1})
		if found[0].Chosen != nil {
			known++
		} else if known > 0 {
			t.Errorf("the log dropped the scores of call %d before those of an earlier call", i)
		}
	}
	if bytes := known * nodes * 22; bytes > 8<<20 || bytes < 7<<20 {
		t.Errorf("the log keeps the scores of %d of %d calls, %d bytes", known, calls, bytes)
	}
}
