package content

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"outboard.dev/outboard/internal/config/strictyaml"
)

// These limits of a JSON document, besides its length, bound the memory of its values.
const (
	maxDepth  = 64
	maxValues = 1_000_000
)

// decodeTree decodes JSON and YAML.
func (d *Decoder) decodeTree(r io.Reader, into *collector) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	root, err := d.parse(bytes.TrimPrefix(data, []byte("\uFEFF")))
	if err != nil {
		return err
	}
	switch {
	case d.items != nil:
		return d.eachItem(root, into)
	case d.value != nil:
		return d.single(root, into)
	}
	return mapping(root, into)
}

// parse returns a tree of map[string]any, []any, float64, string, bool and nil.
func (d *Decoder) parse(data []byte) (any, error) {
	root, err := parseJSON(data)
	if err == nil || d.format == JSON {
		return root, err
	}
	if len(data) > strictyaml.MaxBytes {
		return nil, fmt.Errorf("longer than %d bytes, and not JSON, which may be longer: %w", strictyaml.MaxBytes, err)
	}
	value, err := strictyaml.Parse("document", data)
	if err != nil {
		return nil, err
	}
	return root, value.Decode(&root)
}

func parseJSON(data []byte) (any, error) {
	p := jsonParser{decoder: json.NewDecoder(bytes.NewReader(data))}
	root, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := p.decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is data after the end")
	}
	return root, nil
}

type jsonParser struct {
	decoder *json.Decoder
	values  int
}

func (p *jsonParser) value(depth int) (any, error) {
	token, err := p.decoder.Token()
	if errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF
	} else if err != nil {
		return nil, err
	}
	if p.values++; p.values > maxValues {
		return nil, fmt.Errorf("more than %d values", maxValues)
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	switch token {
	case json.Delim('{'):
		return p.object(depth)
	case json.Delim('['):
		return p.array(depth)
	}
	return token, nil
}

func (p *jsonParser) object(depth int) (any, error) {
	object := map[string]any{}
	for p.decoder.More() {
		token, err := p.decoder.Token()
		if err != nil {
			return nil, err
		}
		key, ok := token.(string)
		if !ok {
			return nil, errors.New("a key is not a string")
		}
		if _, twice := object[key]; twice {
			return nil, fmt.Errorf("duplicate key %.100q", key)
		}
		if object[key], err = p.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return object, p.end()
}

func (p *jsonParser) array(depth int) (any, error) {
	list := []any{}
	for p.decoder.More() {
		item, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	return list, p.end()
}

// end reads the delimiter at the end of an object or an array.
func (p *jsonParser) end() error {
	if _, err := p.decoder.Token(); errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	} else {
		return err
	}
}

// mapping reads the whole document as a mapping of keys to numbers.
func mapping(root any, into *collector) error {
	m, ok := root.(map[string]any)
	if !ok {
		return errors.New("not a mapping of keys to numbers")
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if err := add(into, key, m[key]); err != nil {
			return err
		}
	}
	return checkCollected(len(m), into)
}

func (d *Decoder) single(root any, into *collector) error {
	value, err := d.value.one(root)
	if err != nil {
		return err
	}
	n, ok, err := number(value)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", d.value.text, err)
	case !ok:
		return fmt.Errorf("%s selects nothing", d.value.text)
	}
	return into.add("", n)
}

func (d *Decoder) eachItem(root any, into *collector) error {
	items, err := d.items.all(root)
	if err != nil {
		return err
	}
	for _, item := range items {
		at, err := d.key.one(item)
		if err != nil {
			return err
		}
		key, err := keyOf(at)
		if err != nil {
			return fmt.Errorf("%s: %w", d.key.text, err)
		}
		value, err := d.value.one(item)
		if err != nil {
			return err
		}
		if err := add(into, key, value); err != nil {
			return err
		}
	}
	return checkCollected(len(items), into)
}

func add(into *collector, key string, value any) error {
	n, ok, err := number(value)
	if err != nil {
		return fmt.Errorf("%.100q: %w", key, err)
	}
	if !ok || key == "" {
		return nil
	}
	return into.add(key, n)
}
