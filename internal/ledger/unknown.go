package ledger

import (
	"bytes"
	"encoding/json"

	kjson "sigs.k8s.io/json"
)

// A newer build may have written fields that this build does not know. An update replaces the whole
// object, so an Object keeps these fields and writes them back: a rollback loses nothing. Fields of
// a unit, a claim or a pod stay while the ledger has that unit, claim or pod. A merge patch would
// keep only those outside of lists, as it replaces lists as a whole.

// fields are unknown fields: those of an object by name, and those of the items of a list by their
// key. A value of type fields holds those of a known field or item; any other value is that of an
// unknown field.
type fields map[string]any

// listKeys maps each list to the field that identifies its items, as the schema does.
var listKeys = map[string]string{"units": "name", "claims": "pod", "pods": "uid"}

// plain is an Object with encoding/json's own encoding.
type plain Object

// UnmarshalJSON implements json.Unmarshaler.
func (o *Object) UnmarshalJSON(data []byte) error {
	var p plain
	unknown, err := kjson.UnmarshalStrict(data, &p, kjson.DisallowUnknownFields)
	if err != nil {
		return err
	}
	if p.unknown = nil; len(unknown) > 0 {
		all, err := decode(data)
		if err != nil {
			return err
		}
		known, err := decodeEncoded(&p)
		if err != nil {
			return err
		}
		p.unknown = unknownOf("", all, known)
	}
	*o = Object(p)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (o Object) MarshalJSON() ([]byte, error) {
	if len(o.unknown) == 0 {
		return json.Marshal((*plain)(&o))
	}
	object, err := decodeEncoded((*plain)(&o))
	if err != nil {
		return nil, err
	}
	o.unknown.addTo("", object)
	return json.Marshal(object)
}

func decodeEncoded(p *plain) (map[string]any, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return decode(data)
}

// decode decodes an object, with exact numbers.
func decode(data []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var object map[string]any
	return object, decoder.Decode(&object)
}

// unknownOf returns what the field of this name has and the known part of it lacks.
func unknownOf(name string, all, known any) fields {
	rest, has := fields{}, members(name, known)
	for field, value := range members(name, all) {
		if same, isKnown := has[field]; !isKnown {
			rest[field] = value
		} else if inner := unknownOf(field, value, same); len(inner) > 0 {
			rest[field] = inner
		}
	}
	return rest
}

// addTo adds the fields to the field of this name, where that has what they belong to. It shares
// memory with f.
func (f fields) addTo(name string, value any) {
	has := members(name, value)
	for field, unknown := range f {
		_, isKnown := has[field]
		if inner, ok := unknown.(fields); ok {
			inner.addTo(field, has[field])
		} else if has != nil && !isKnown {
			has[field] = unknown
		}
	}
}

// members returns the fields of an object, or the items of a list by their key; nil for any other
// value.
func members(name string, value any) map[string]any {
	list, _ := value.([]any)
	key := listKeys[name]
	if list == nil || key == "" {
		object, _ := value.(map[string]any)
		return object
	}
	items := make(map[string]any, len(list))
	for _, item := range list {
		object, _ := item.(map[string]any)
		id, _ := object[key].(string)
		items[id] = object
	}
	return items
}
