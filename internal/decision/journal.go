package decision

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"sync/atomic"
	"time"
)

const (
	// journalQueue is how many records wait to be written, and journalBuffer how many bytes are written together.
	journalQueue  = 1024
	journalBuffer = 64 << 10
	// journalReasons is how many reasons for rejections a line has, and journalPatience how long Run waits for a write at its end.
	journalReasons  = 5
	journalPatience = time.Second
)

// Journal writes the decisions of a Log as one line of JSON each: bind calls, with the totals of the chosen node and of the best other one;
// prioritize and preempt calls; and filter calls that fail or that no node passes, with the reasons. It never delays a call: what cannot be
// written in time is dropped and counted.
type Journal struct {
	log     *Log
	to      io.Writer
	failed  func(error)
	queue   chan *Record
	dropped atomic.Uint64
}

// NewJournal returns a Journal of the records that are added to the Log from now on. Call it before anything is added, and then Run. failed
// is called with each error of the writer.
func NewJournal(log *Log, to io.Writer, failed func(error)) *Journal {
	j := &Journal{log: log, to: to, failed: failed, queue: make(chan *Record, journalQueue)}
	log.journal = j
	return j
}

// Dropped returns how many decisions were dropped.
func (j *Journal) Dropped() uint64 { return j.dropped.Load() }

// offer queues the record, if it becomes a line and there is room.
func (j *Journal) offer(r *Record) {
	if r.Verb == Filter && r.Fit > 0 && r.Error == "" {
		return // the calls that follow have the decision
	}
	select {
	case j.queue <- r:
	default:
		j.dropped.Add(1)
	}
}

// Run writes until ctx ends, and then what is queued, if the writer does not hang.
func (j *Journal) Run(ctx context.Context) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		j.write(ctx)
	}()
	<-ctx.Done()
	select {
	case <-written:
	case <-time.After(journalPatience):
	}
}

func (j *Journal) write(ctx context.Context) {
	var text bytes.Buffer
	lines, torn := uint64(0), false // the writer may have taken a part of a line
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	for {
		select {
		case r := <-j.queue:
			_ = encoder.Encode(j.line(r)) // a buffer does not fail, and a line has no value that JSON lacks
			lines++
			if len(j.queue) > 0 && text.Len() < journalBuffer {
				continue
			}
			n, err := j.to.Write(text.Bytes())
			if err != nil {
				j.dropped.Add(lines)
				j.failed(err)
			}
			if n > 0 {
				torn = text.Bytes()[n-1] != '\n'
			}
			text.Reset()
			if lines = 0; torn {
				text.WriteByte('\n')
			}
		case <-ctx.Done():
			if len(j.queue) == 0 {
				return
			}
		}
	}
}

// journalLine is one line. Fields that do not apply are left out.
type journalLine struct {
	Time    time.Time `json:"time"`
	Verb    Verb      `json:"verb"`
	Profile string    `json:"profile"`
	Pod     Pod       `json:"pod"`
	// Nodes is the number of nodes in the call, and Fit how many of them fit.
	Nodes int  `json:"nodes,omitempty"`
	Fit   *int `json:"fit,omitempty"`
	// Node is the node to which the pod is bound, or the best one of a prioritize call, and Total its total, if it was scored. RunnerUp is
	// the best of the others.
	Node     string          `json:"node,omitempty"`
	Total    *int64          `json:"total,omitempty"`
	RunnerUp *journalNode    `json:"runnerUp,omitempty"`
	Reasons  []journalReason `json:"reasons,omitempty"`
	Error    string          `json:"error,omitempty"`
}

type journalNode struct {
	Node  string `json:"node"`
	Total int64  `json:"total"`
}

// journalReason is a reason for which nodes were rejected.
type journalReason struct {
	Policy string `json:"policy,omitempty"`
	Code   string `json:"code"`
	Nodes  int    `json:"nodes"`
}

func (j *Journal) line(r *Record) journalLine {
	line := journalLine{Time: r.Time.UTC(), Verb: r.Verb, Profile: r.Profile, Pod: r.Pod, Nodes: r.Nodes, Node: r.Bound, Error: r.Error}
	scored := r
	switch r.Verb {
	case Filter:
		line.Fit = new(r.Fit)
	case Bind:
		scored = j.scored(r)
	}
	for i := range r.Rejections[:min(len(r.Rejections), journalReasons)] {
		line.Reasons = append(line.Reasons, journalReason{r.Rejections[i].Policy, r.Rejections[i].Code, r.Rejections[i].Nodes})
	}
	if scored == nil || len(scored.Top) == 0 {
		return line
	}
	if line.Node == "" {
		line.Node = scored.Top[0].Node
	}
	if chosen := scored.Chosen; chosen != nil && chosen.Node == line.Node {
		line.Total = new(chosen.Total)
	}
	for i := range scored.Top {
		top := &scored.Top[i]
		switch {
		case top.Node == line.Node:
			line.Total = new(top.Total)
		case line.RunnerUp == nil:
			line.RunnerUp = &journalNode{top.Node, top.Total}
		}
	}
	return line
}

// scored returns the latest record of the pod with scores, or nil.
func (j *Journal) scored(bind *Record) *Record {
	const enough = 20 // calls between prioritize and bind
	for _, r := range j.log.Find(Query{Namespace: bind.Pod.Namespace, Name: bind.Pod.Name, UID: bind.Pod.UID, Profile: bind.Profile, Node: bind.Bound, Limit: enough}) {
		if len(r.Top) > 0 {
			return r
		}
	}
	return nil
}
