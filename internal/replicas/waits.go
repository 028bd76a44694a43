package replicas

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"outboard.dev/outboard/internal/respond"
	"outboard.dev/outboard/internal/ui"
)

// Waits follows the pods that wait: it reads from each replica only what has changed since it last
// did. The zero value is ready. It is safe for concurrent use.
type Waits struct {
	mu       sync.Mutex
	replicas map[string]*follower // by the URL of the admin address
}

// follower knows the pods that wait by one replica.
type follower struct {
	mu     sync.Mutex
	cursor string
	rows   map[string]*ui.WaitingRow // by UID
}

// maxFollowed is how many replicas Waits follows: those of rollouts that have ended are dropped
// some time.
const maxFollowed = 64

// Fetch is a [Fetch] of a row for each pod that waits, in no particular order. The rows are shared.
func (w *Waits) Fetch(ctx context.Context, client *http.Client, admin string) ([]*ui.WaitingRow, error) {
	w.mu.Lock()
	f := w.replicas[admin]
	if f == nil {
		if w.replicas == nil || len(w.replicas) >= maxFollowed {
			w.replicas = map[string]*follower{}
		}
		f = &follower{rows: map[string]*ui.WaitingRow{}}
		w.replicas[admin] = f
	}
	w.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		changes, err := FetchJSON[ui.WaitingChanges](ui.ChangesPath+"?after="+url.QueryEscape(f.cursor))(ctx, client, admin)
		if err != nil {
			return nil, err
		}
		f.apply(&changes)
		if !changes.More {
			return slices.Collect(maps.Values(f.rows)), nil
		}
	}
}

func (f *follower) apply(w *ui.WaitingChanges) {
	if w.Reset {
		clear(f.rows)
	}
	f.cursor = w.Cursor
	for _, c := range w.Changes {
		if c.Row == nil {
			delete(f.rows, c.UID)
		} else {
			f.rows[c.UID] = c.Row
		}
	}
}

// FetchJSON returns a function that reads the JSON at the path of a replica, which may have a
// query.
func FetchJSON[T any](path string) Fetch[T] {
	return func(ctx context.Context, client *http.Client, admin string) (value T, err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, admin+path, nil)
		if err != nil {
			return value, err
		}
		return value, respond.Read(client, req, &value)
	}
}
