// Package jsondoc decodes JSON of sources of signals.
package jsondoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"outboard.dev/outboard/signal"
)

// Read decodes a document, which is at most as long as its reader allows.
func Read(document io.Reader, into any) error {
	data, err := io.ReadAll(document)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// List is an array. It has at most signal.MaxValues items, because short ones take much more memory
// than their text.
type List[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (l *List[T]) UnmarshalJSON(data []byte) error {
	items := json.NewDecoder(bytes.NewReader(data))
	if first, err := items.Token(); err != nil || first != json.Delim('[') {
		return errors.Join(err, errors.New("not a list"))
	}
	for items.More() {
		if len(*l) == signal.MaxValues {
			return signal.ErrTooMany
		}
		var item T
		if err := items.Decode(&item); err != nil {
			return err
		}
		*l = append(*l, item)
	}
	return nil
}
