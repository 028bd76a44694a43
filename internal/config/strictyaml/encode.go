package strictyaml

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Marshal returns v as YAML. Decoding the text into a value of v's type, with any
// defaults, gives v again: Marshal writes every field,
// omitempty or not, except nil pointers, slices and maps, and fields with the tag oneOf
// (see [fields.Check]) that are not set. Fields are in the order
// of the struct, and keys of maps are sorted.
func Marshal(v any) ([]byte, error) {
	value, err := Encode(v)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err = errors.Join(encoder.Encode(value.node), encoder.Close())
	return out.Bytes(), err
}

// Encode is like Marshal but returns a Value, which has no position. It is the zero
// Value if v is nil.
func Encode(v any) (Value, error) {
	n, err := encode(reflect.ValueOf(v))
	return Value{node: n}, err
}

// encode returns rv as a node; nil if it is nil.
func encode(rv reflect.Value) (*yaml.Node, error) {
	if !rv.IsValid() {
		return nil, nil
	}
	switch rv.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice:
		if rv.IsNil() {
			return nil, nil
		}
	}
	switch v := rv.Interface().(type) {
	case Value:
		if v.IsZero() {
			return nil, nil
		}
		return plain(resolve(v.node)), nil
	case time.Duration:
		return stringNode(v.String()), nil
	case metav1.Duration:
		return stringNode(v.Duration.String()), nil
	case json.Number:
		return bareNode(v.String()), nil
	case json.Marshaler:
		return encodeJSON(v)
	case encoding.TextMarshaler:
		text, err := v.MarshalText()
		return stringNode(string(text)), err
	}
	switch kind := rv.Kind(); {
	case kind == reflect.Pointer || kind == reflect.Interface:
		return encode(rv.Elem())
	case kind == reflect.Struct:
		return encodeStruct(rv)
	case kind == reflect.Map && rv.Type().Key().Kind() == reflect.String:
		n := &yaml.Node{Kind: yaml.MappingNode}
		keys := rv.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
		for _, key := range keys {
			n.Content = append(n.Content, stringNode(key.String()))
			if err := addElement(n, rv.MapIndex(key), key.String()); err != nil {
				return nil, err
			}
		}
		return n, nil
	case kind == reflect.Slice && rv.Type().Elem().Kind() != reflect.Uint8:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range rv.Len() {
			if err := addElement(n, rv.Index(i), fmt.Sprintf("[%d]", i)); err != nil {
				return nil, err
			}
		}
		return n, nil
	case kind == reflect.String:
		return stringNode(rv.String()), nil
	case kind >= reflect.Bool && kind <= reflect.Float64:
		text, err := json.Marshal(rv.Interface())
		return bareNode(string(text)), err
	}
	return nil, fmt.Errorf("cannot be written to a file: Go type %s", rv.Type())
}

func encodeStruct(rv reflect.Value) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range structFields(rv.Type()) {
		value, ok := f.of(rv, false)
		if !ok || rv.Type().FieldByIndex(f.index).Tag.Get("oneOf") != "" && value.IsZero() { // one that is not set is absent
			continue
		}
		inner, err := encode(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if inner != nil {
			n.Content = append(n.Content, stringNode(f.name), inner)
		}
	}
	return n, nil
}

// addElement adds a value of a map or list, with a name for errors, to n.
func addElement(n *yaml.Node, rv reflect.Value, name string) error {
	inner, err := encode(rv)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if inner == nil {
		inner = bareNode("null")
	}
	n.Content = append(n.Content, inner)
	return nil
}

func encodeJSON(v json.Marshaler) (*yaml.Node, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, err
	}
	return encode(reflect.ValueOf(tree))
}

// bareNode returns text as a scalar without quotes.
func bareNode(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	n.Tag = n.ShortTag()
	return n
}

// Several lines of plain text are readable as a block; anything odder is not.
var block = regexp.MustCompile(`^[!-~][ -~]*(?:\n[ -~]*)+$`)

// stringNode returns s as a scalar that no reader takes for anything else: such as <<, which
// yaml.v3 takes for a merge key only when it reads.
func stringNode(s string) *yaml.Node {
	n := bareNode(s)
	switch {
	case block.MatchString(s):
		n.Style = yaml.LiteralStyle
	case s == "<<" || classify(n) != text || strconv.Quote(s) != `"`+s+`"`:
		n.Style = yaml.DoubleQuotedStyle
	}
	n.Tag = "!!str"
	return n
}

// plain returns a copy of n with aliases and comments written out and in block
// style.
func plain(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.ScalarNode && classify(n) == text {
		return stringNode(n.Value)
	}
	c := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Value: n.Value}
	for _, inner := range n.Content {
		c.Content = append(c.Content, plain(resolve(inner)))
	}
	return c
}
