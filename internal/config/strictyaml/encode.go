package strictyaml

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
	if value.node == nil {
		return []byte("null\n"), nil
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(value.node), encoder.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Encode is like Marshal but returns a Value, which has no position. It is the zero
// Value if v is nil.
func Encode(v any) (Value, error) {
	if v == nil {
		return Value{}, nil
	}
	// A copy that is addressable, for methods with pointer receivers.
	rv := reflect.New(reflect.TypeOf(v)).Elem()
	rv.Set(reflect.ValueOf(v))
	n, err := encode(rv, 0)
	return Value{node: n}, err
}

// Change is a field that differs between two values.
type Change struct {
	// Path is that of the field in the new value, or in the old one if only that has the field.
	Path string `json:"field"`
	// Old and New are the two values as YAML in one line, clipped to the first difference; "" if
	// the field is absent.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
}

// String returns a line such as "profiles[0].schedulerNames: [a] → [b]".
func (c Change) String() string {
	return c.Path + ": " + cmp.Or(redact(c.Old), "none") + " → " + cmp.Or(redact(c.New), "none")
}

// Diff returns the changes from a to b in the order of their fields, with paths below path. Where
// only one of them has a field or item, or they are of different kinds, the change is that of the
// whole field or item. So is that of a list without mappings and lists.
func Diff(path string, a, b Value) []Change { return diff(nil, path, a.node, b.node) }

func diff(changes []Change, path string, a, b *yaml.Node) []Change {
	if a != nil {
		a = resolve(a)
	}
	if b != nil {
		b = resolve(b)
	}
	switch {
	case a == nil && b == nil:
	case a == nil || b == nil || a.Kind != b.Kind:
		changes = append(changes, changed(path, a, b))
	case a.Kind == yaml.ScalarNode:
		if a.Value != b.Value || classify(a) != classify(b) {
			changes = append(changes, changed(path, a, b))
		}
	case a.Kind == yaml.SequenceNode:
		length := max(len(a.Content), len(b.Content))
		var items []Change
		for i := range length {
			items = diff(items, fmt.Sprintf("%s[%d]", path, i), at(a, i), at(b, i))
		}
		if len(items) > 0 && scalars(a) && scalars(b) {
			items = []Change{changed(path, a, b)}
		}
		changes = append(changes, items...)
	case a.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(a.Content); i += 2 {
			key := a.Content[i].Value
			changes = diff(changes, joinPath(path, key), a.Content[i+1], get(b, key))
		}
		for i := 0; i+1 < len(b.Content); i += 2 {
			if key := b.Content[i].Value; get(a, key) == nil {
				changes = append(changes, changed(joinPath(path, key), nil, b.Content[i+1]))
			}
		}
	}
	return changes
}

// scalars reports whether the items of a list are scalars.
func scalars(list *yaml.Node) bool {
	return !slices.ContainsFunc(list.Content, func(n *yaml.Node) bool { return resolve(n).Kind != yaml.ScalarNode })
}

const (
	maxChanged = 160 // bytes of a value in a Change
	before     = 40  // bytes before the first difference, if the beginning is clipped
)

// changed returns the change of the field at path from a to b, of which one may be nil.
func changed(path string, a, b *yaml.Node) Change {
	x, y := flow(a), flow(b)
	same := 0
	for same < min(len(x), len(y)) && x[same] == y[same] {
		same++
	}
	if from := same - before; from > 0 && max(len(x), len(y)) > maxChanged {
		x, y = "…"+strings.ToValidUTF8(x[from:], ""), "…"+strings.ToValidUTF8(y[from:], "")
	}
	return Change{path, clip(x, maxChanged), clip(y, maxChanged)}
}

// flow returns n as YAML in one line; "" if n is nil.
func flow(n *yaml.Node) string {
	if n == nil {
		return ""
	}
	text, err := yaml.Marshal(inOneLine(plain(resolve(n))))
	if err != nil {
		return err.Error() // no node of a document causes this
	}
	return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", " ")
}

// inOneLine changes the styles of n, and returns it.
func inOneLine(n *yaml.Node) *yaml.Node {
	switch {
	case n.Kind != yaml.ScalarNode:
		n.Style = yaml.FlowStyle
	case n.Style == yaml.LiteralStyle || n.Value == "":
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, inner := range n.Content {
		inOneLine(inner)
	}
	return n
}

func at(n *yaml.Node, i int) *yaml.Node {
	if i < len(n.Content) {
		return n.Content[i]
	}
	return nil
}

func get(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// encode returns rv as a node; nil if it is nil. rv is addressable.
func encode(rv reflect.Value, depth int) (*yaml.Node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%s nests deeper than %d", rv.Type(), maxDepth)
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
	}
	if rv.Kind() == reflect.Pointer || rv.Kind() == reflect.Interface {
		if rv.IsNil() {
			return nil, nil
		}
		inner := reflect.New(rv.Elem().Type()).Elem()
		inner.Set(rv.Elem())
		return encode(inner, depth+1)
	}
	switch v := rv.Addr().Interface().(type) {
	case json.Marshaler:
		return encodeJSON(v, depth)
	case encoding.TextMarshaler:
		text, err := v.MarshalText()
		return stringNode(string(text)), err
	}
	switch rv.Kind() {
	case reflect.Struct:
		return encodeStruct(rv, depth)
	case reflect.Map:
		return encodeMap(rv, depth)
	case reflect.Slice:
		return encodeSlice(rv, depth)
	case reflect.String:
		return stringNode(rv.String()), nil
	case reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		text, err := json.Marshal(rv.Interface())
		return bareNode(string(text)), err
	}
	return nil, fmt.Errorf("cannot be written to a file: Go type %s", rv.Type())
}

func encodeStruct(rv reflect.Value, depth int) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range structFields(rv.Type()) {
		value, ok := f.of(rv, false)
		if !ok || rv.Type().FieldByIndex(f.index).Tag.Get("oneOf") != "" && value.IsZero() { // one that is not set is absent
			continue
		}
		inner, err := encode(value, depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if inner != nil {
			n.Content = append(n.Content, stringNode(f.name), inner)
		}
	}
	return n, nil
}

func encodeMap(rv reflect.Value, depth int) (*yaml.Node, error) {
	if rv.Type().Key().Kind() != reflect.String {
		return nil, fmt.Errorf("cannot be written to a file: Go type %s", rv.Type())
	}
	if rv.IsNil() {
		return nil, nil
	}
	values := make(map[string]reflect.Value, rv.Len())
	for key, value := range rv.Seq2() {
		elem := reflect.New(value.Type()).Elem()
		elem.Set(value)
		values[key.String()] = elem
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		inner, err := encode(values[key], depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		if inner == nil {
			inner = bareNode("null")
		}
		n.Content = append(n.Content, stringNode(key), inner)
	}
	return n, nil
}

func encodeSlice(rv reflect.Value, depth int) (*yaml.Node, error) {
	if rv.Type().Elem().Kind() == reflect.Uint8 {
		return nil, fmt.Errorf("cannot be written to a file: Go type %s", rv.Type())
	}
	if rv.IsNil() {
		return nil, nil
	}
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range rv.Len() {
		inner, err := encode(rv.Index(i), depth+1)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		if inner == nil {
			inner = bareNode("null")
		}
		n.Content = append(n.Content, inner)
	}
	return n, nil
}

func encodeJSON(v json.Marshaler, depth int) (*yaml.Node, error) {
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
	if tree == nil {
		return nil, nil
	}
	return encode(reflect.ValueOf(&tree).Elem(), depth)
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
