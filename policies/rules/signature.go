package rules

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// maxSigned bounds the length of a signature, in bytes: pods with larger ones are seldom alike.
const maxSigned = 4096

type signature string

func (s signature) Signature() string { return string(s) }

func appendText(text []byte, s string) []byte {
	return append(binary.AppendUvarint(text, uint64(len(s))), s...)
}

// appendValue appends a text that no other value has. It returns false if it has no text for such a
// value, or if the text is too long.
func appendValue(text []byte, v ref.Val) (signed []byte, ok bool) {
	if len(text) > maxSigned {
		return nil, false
	}
	switch v := v.(type) {
	case nil:
		return append(text, '-'), true
	case *types.Err: // which error it is matters to explanations only
		return fmt.Append(append(text, 'e'), exceeds(v)), true
	case types.Null, types.Bool, types.Int, types.Uint, types.Double, types.String, types.Bytes,
		types.Duration, types.Timestamp:
		return appendText(append(text, 'v'), fmt.Sprintf("%T %v", v, v.Value())), true
	case apiservercel.Quantity:
		q := v.DeepCopy() // its text is kept in it
		return appendText(append(text, 'q'), q.String()), true
	case *types.Optional:
		if !v.HasValue() {
			return append(text, 'o'), true
		}
		return appendValue(append(text, 'O'), v.GetValue())
	case *object:
		encoded, err := json.Marshal(v.Value())
		if err != nil || bytes.Contains(encoded, []byte(`\ufffd`)) {
			return nil, false // it replaces bytes that are no text
		}
		return appendText(appendText(append(text, 'x'), v.kind.name), string(encoded)), true
	case keyedSignal: // its values have been signed
		return appendText(append(text, 'k'), v.signal), true
	case *orderedMap:
		return appendMap(text, v)
	case traits.Lister:
		return appendList(text, v)
	}
	return nil, false // such as a map whose order varies
}

func appendMap(text []byte, m *orderedMap) (signed []byte, ok bool) {
	text = binary.AppendUvarint(append(text, 'm'), uint64(m.native.Len()))
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		if text, ok = appendValue(text, key); ok {
			text, ok = appendValue(text, m.Get(key))
		}
		if !ok {
			return nil, false
		}
	}
	return text, true
}

func appendList(text []byte, l traits.Lister) (signed []byte, ok bool) {
	size, _ := l.Size().(types.Int)
	text = binary.AppendUvarint(append(text, 'l'), uint64(size))
	for it := l.Iterator(); it.HasNext() == types.True; {
		if text, ok = appendValue(text, it.Next()); !ok {
			return nil, false
		}
	}
	return text, true
}
