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
	// journalQueue is how many records wait to be written, and journalBuffer how many bytes are
	// written together.
	journalQueue  = 1024
	journalBuffer = 64 << 10
	// journalPatience is how long Run waits for a write at its end.
	journalPatience = time.Second
)

// Journal writes the records of a Log as one line of JSON each, except those of filter calls that a
// node passes: the calls that follow have the decision. It never delays a call: what cannot be
// written in time is dropped and counted.
type Journal struct {
	to      io.Writer
	failed  func(error)
	queue   chan *Record
	dropped atomic.Uint64
}

// NewJournal returns a Journal of the records that are added to the Log from now on. Call it before
// anything is added, and then Run. failed is called with each error of the writer.
func NewJournal(log *Log, to io.Writer, failed func(error)) *Journal {
	log.journal = &Journal{to: to, failed: failed, queue: make(chan *Record, journalQueue)}
	return log.journal
}

// Dropped returns how many decisions were dropped.
func (j *Journal) Dropped() uint64 { return j.dropped.Load() }

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
	for {
		select {
		case r := <-j.queue:
			_ = encoder.Encode(r) // a buffer does not fail, and a record has no value that JSON lacks
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

// offer queues the record, if it becomes a line and the queue is not full.
func (j *Journal) offer(r *Record) {
	if r.Verb == Filter && r.Fit > 0 && r.Error == "" {
		return
	}
	select {
	case j.queue <- r:
	default:
		j.dropped.Add(1)
	}
}
