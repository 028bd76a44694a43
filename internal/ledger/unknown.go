package ledger

import (
	"bytes"
	"encoding/json"

	kjson "sigs.k8s.io/json"
)

// A newer build may have written fields that this build does not know. An update replaces the whole object, so an Object keeps these
// fields and writes them back: a rollback loses nothing. Fields of a unit, a claim or a pod stay while the ledger has that unit, claim or
// pod.

// fields are the unknown fields of an object by name. A value of type fields or items holds those of a known field; any other value is
// that of an unknown field.
type fields map[string]any

// items are the unknown fields of the items of a list, by their key.
type items map[string]fields

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
		if p.unknown, err = unknownFields(data, &p); err != nil {
			return err
		}
	}
	*o = Object(p)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (o Object) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal((*plain)(&o))
	if err != nil || len(o.unknown) == 0 {
		return data, err
	}
	object, err := decode(data)
	if err != nil {
		return nil, err
	}
	o.unknown.addTo(object)
	return json.Marshal(object)
}

// unknownFields returns the fields of the encoded object that are not in the decoded one.
func unknownFields(data []byte, decoded *plain) (fields, error) {
	all, err := decode(data)
	if err != nil {
		return nil, err
	}
	if data, err = json.Marshal(decoded); err != nil {
		return nil, err
	}
	known, err := decode(data)
	if err != nil {
		return nil, err
	}
	return subtract(all, known), nil
}

// decode decodes an object, with exact numbers.
func decode(data []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var object map[string]any
	return object, decoder.Decode(&object)
}

// subtract returns the fields of all that known does not have; nil if there are none.
func subtract(all, known map[string]any) fields {
	rest := fields{}
	for name, value := range all {
		same, isKnown := known[name]
		if !isKnown {
			rest[name] = value
			continue
		}
		switch value := value.(type) {
		case map[string]any:
			if same, ok := same.(map[string]any); ok {
				if inner := subtract(value, same); inner != nil {
					rest[name] = inner
				}
			}
		case []any:
			if inner := subtractItems(listKeys[name], value, same); inner != nil {
				rest[name] = inner
			}
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return rest
}

// subtractItems is subtract for the items of a list, which key identifies. The decoded list has them in the same order.
func subtractItems(key string, all []any, known any) items {
	same, ok := known.([]any)
	if key == "" || !ok || len(same) != len(all) {
		return nil
	}
	rest := items{}
	for i := range all {
		item, _ := all[i].(map[string]any)
		decoded, _ := same[i].(map[string]any)
		name, _ := decoded[key].(string)
		if inner := subtract(item, decoded); inner != nil {
			rest[name] = inner
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return rest
}

// addTo adds the fields to the encoded object, where it has what they belong to. It shares memory with f.
func (f fields) addTo(object map[string]any) {
	for name, value := range f {
		switch value := value.(type) {
		case fields:
			if inner, ok := object[name].(map[string]any); ok {
				value.addTo(inner)
			}
		case items:
			list, _ := object[name].([]any)
			for _, item := range list {
				if item, ok := item.(map[string]any); ok {
					key, _ := item[listKeys[name]].(string)
					value[key].addTo(item)
				}
			}
		default:
			if _, ok := object[name]; !ok {
				object[name] = value
			}
		}
	}
}
