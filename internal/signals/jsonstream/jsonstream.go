// Package jsonstream reads JSON documents of sources value by value, so that the size of a document
// does not determine the use of memory.
package jsonstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// maxToken bounds one text or number, in bytes: much more than a key, a label or a number
	// needs.
	maxToken = 64 << 10
	// maxDepth bounds how deep objects and arrays are nested.
	maxDepth = 64
)

// Reader reads one document. Its memory is a small multiple of that of the longest token, which has
// a limit.
type Reader struct {
	decoder       *json.Decoder
	from          io.Reader
	read, allowed int64 // bytes of from
	depth         int
}

// New returns a Reader of the document.
func New(document io.Reader) *Reader {
	r := &Reader{from: document}
	r.decoder = json.NewDecoder((*tokenReader)(r))
	return r
}

// tokenReader is the document as the decoder reads it: not beyond the longest possible token.
type tokenReader Reader

// Read implements io.Reader.
func (r *tokenReader) Read(p []byte) (int, error) {
	if r.read >= r.allowed {
		return 0, fmt.Errorf("a text or number is longer than %d bytes", maxToken)
	}
	n, err := r.from.Read(p[:min(int64(len(p)), r.allowed-r.read)])
	r.read += int64(n)
	return n, err
}

// Token returns the next token, as json.Decoder does. The end of the document is
// io.ErrUnexpectedEOF.
func (r *Reader) Token() (json.Token, error) {
	r.allowed = r.decoder.InputOffset() + maxToken
	token, err := r.decoder.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	switch token {
	case json.Delim('{'), json.Delim('['):
		if r.depth++; r.depth > maxDepth {
			return nil, fmt.Errorf("nested deeper than %d", maxDepth)
		}
	case json.Delim('}'), json.Delim(']'):
		r.depth--
	}
	return token, err
}

// more reports whether the array or object has another element.
func (r *Reader) more() bool {
	r.allowed = r.decoder.InputOffset() + maxToken
	return r.decoder.More()
}

// Value reads a value, and returns its first token. It reads an object with Fields, and an array
// with Items.
func (r *Reader) Value(field func(name string) error, item func() error) (first json.Token, err error) {
	switch first, err = r.Token(); first {
	case json.Delim('{'):
		err = r.Fields(field)
	case json.Delim('['):
		err = r.Items(item)
	}
	return first, err
}

// Text reads a value and returns it if it is a string, and "" otherwise.
func (r *Reader) Text() (string, error) {
	token, err := r.Value(nil, nil)
	text, _ := token.(string)
	return text, err
}

// Skip reads a value.
func (r *Reader) Skip() error {
	_, err := r.Value(nil, nil)
	return err
}

// Fields reads an object after its first token: it calls field for each field, to read its value;
// if it is nil, Fields skips that.
func (r *Reader) Fields(field func(name string) error) error {
	return r.Items(func() error {
		token, err := r.Token()
		if err != nil {
			return err
		}
		name, ok := token.(string)
		switch {
		case !ok:
			return errors.New("a key is not a string")
		case field == nil:
			return r.Skip()
		}
		return field(name)
	})
}

// Items reads an array after its first token: it calls item for each item, to read it; if it is
// nil, Items skips that.
func (r *Reader) Items(item func() error) error {
	if item == nil {
		item = r.Skip
	}
	for r.more() {
		if err := item(); err != nil {
			return err
		}
	}
	_, err := r.Token()
	return err
}

// End returns an error if the document has more.
func (r *Reader) End() error {
	r.allowed = r.decoder.InputOffset() + maxToken
	if _, err := r.decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is data after the end")
	}
	return nil
}
