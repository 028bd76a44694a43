package replicas

import (
	"bytes"
	"io"
	"net/http"
	"sync"

	"outboard.dev/outboard/internal/respond"
)

// maxKept is how many responses a Cache keeps.
const maxKept = 64

// Cache keeps the latest responses that have an ETag, so that a replica sends again only what has
// changed. The zero value is empty and ready. It is safe for concurrent use.
type Cache struct {
	mu   sync.Mutex
	kept map[string]keptResponse // by name of the replica and request URI
}

type keptResponse struct {
	code   int
	status string
	header http.Header
	body   []byte
}

// For returns the replicas, read through the cache. Requests with their own If-None-Match or
// Accept-Encoding are not.
func (c *Cache) For(all []Replica) []Replica {
	cached := make([]Replica, len(all))
	for i, r := range all {
		cached[i] = r
		if r.client != nil {
			cached[i].client = &http.Client{Transport: &throughCache{c, r.Name, r.client.Transport}}
		}
	}
	return cached
}

type throughCache struct {
	cache *Cache
	name  string
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *throughCache) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet || req.Header.Get("If-None-Match") != "" || req.Header.Get("Accept-Encoding") != "" {
		return t.next.RoundTrip(req)
	}
	key := t.name + req.URL.RequestURI()
	kept, ok := t.cache.get(key)
	if ok {
		req = req.Clone(req.Context())
		req.Header.Set("If-None-Match", kept.header.Get("ETag"))
	}
	res, err := t.next.RoundTrip(req)
	if err != nil || res.Header.Get("ETag") == "" {
		return res, err
	}
	defer res.Body.Close()
	if !ok || res.StatusCode != http.StatusNotModified {
		kept = keptResponse{code: res.StatusCode, status: res.Status, header: res.Header}
		if kept.body, err = io.ReadAll(io.LimitReader(res.Body, respond.MaxBody)); err != nil {
			return nil, err
		}
		t.cache.put(key, kept)
	}
	again := *res
	again.StatusCode, again.Status, again.Header = kept.code, kept.status, kept.header.Clone()
	again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(kept.body)), int64(len(kept.body))
	return &again, nil
}

func (c *Cache) get(key string) (keptResponse, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, ok := c.kept[key]
	return kept, ok
}

func (c *Cache) put(key string, kept keptResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil || len(c.kept) >= maxKept {
		c.kept = map[string]keptResponse{}
	}
	c.kept[key] = kept
}
