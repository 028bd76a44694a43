// Package respond writes JSON responses that clients poll: compressed, with an ETag, and without a
// body if the client has the same.
package respond

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// Response is an encoded response. It is immutable.
type Response struct {
	etag   string
	body   []byte
	zipped func() []byte // nil: the body is short
}

// New encodes the value. The ETag changes exactly when the JSON of unstamped does, which is the
// value without what changes by itself, such as the time; nil if the value has nothing of that
// kind.
func New(value, unstamped any) (r Response, err error) {
	if r.body, err = json.Marshal(value); err != nil {
		return r, err
	}
	stamp := r.body
	if unstamped != nil {
		if stamp, err = json.Marshal(unstamped); err != nil {
			return r, err
		}
	}
	r.etag = fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256(stamp))[:24])
	if body := r.body; len(body) > 4096 {
		r.zipped = sync.OnceValue(func() []byte { return zip(body) }) // no client may need it
	}
	return r, nil
}

// Write responds with the response, or without a body if the request has its ETag.
func (r *Response) Write(w http.ResponseWriter, req *http.Request) {
	header := w.Header()
	header.Set("ETag", r.etag)
	header.Set("Vary", "Accept-Encoding")
	if req.Header.Get("If-None-Match") == r.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", "application/json")
	body := r.body
	if r.zipped != nil && strings.Contains(req.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		body = r.zipped()
	}
	_, _ = w.Write(body) // the connection is gone if this fails
}

// JSON responds with the value: see New.
func JSON(w http.ResponseWriter, req *http.Request, value, unstamped any) {
	r, err := New(value, unstamped)
	if err != nil {
		Failed(w, err)
		return
	}
	r.Write(w, req)
}

// Failed responds that a value could not be encoded.
func Failed(w http.ResponseWriter, err error) {
	http.Error(w, "internal error: "+err.Error(), http.StatusInternalServerError)
}

// zippers are kept, because each has a megabyte.
var zippers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return z
}}

func zip(body []byte) []byte {
	z := zippers.Get().(*gzip.Writer)
	defer zippers.Put(z)
	var b bytes.Buffer
	z.Reset(&b)
	_, _ = z.Write(body) // a Buffer accepts everything
	_ = z.Close()
	return b.Bytes()
}
