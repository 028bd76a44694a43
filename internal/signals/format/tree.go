package format

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

// maxValues bounds the memory of the values of a JSON document, with its length.
const maxValues = 1_000_000

func (d *Decoder) decode(r io.Reader, into *collector) error {
	root, err := parse(r)
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
func parse(r io.Reader) (any, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF")) // a byte order mark
	if n := bytes.Count(data, []byte(",")) + bytes.Count(data, []byte("[")) + bytes.Count(data, []byte("{")); n > maxValues {
		return nil, fmt.Errorf("more than %d values", maxValues)
	}
	var root any
	if err = json.Unmarshal(data, &root); err == nil {
		return root, nil
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
