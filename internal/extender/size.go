package extender

import "reflect"

// sizeOf returns the memory of an object with everything that it references, including shared
// memory.
func sizeOf(object any) int64 {
	v := reflect.ValueOf(object)
	return int64(v.Type().Size()) + sizeBehind(v)
}

// mapShare is the part of a map's memory that its entries take, as one in mapShare.
const mapShare = 2

// sizeBehind returns the size of what a value references.
func sizeBehind(v reflect.Value) (size int64) {
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer:
		if !v.IsNil() {
			size = int64(v.Type().Elem().Size()) + sizeBehind(v.Elem())
		}
	case reflect.Slice:
		size = int64(v.Cap()) * int64(v.Type().Elem().Size())
		for i := range v.Len() {
			size += sizeBehind(v.Index(i))
		}
	case reflect.Map:
		entry := int64(v.Type().Key().Size() + v.Type().Elem().Size())
		for entries := v.MapRange(); entries.Next(); {
			size += mapShare*entry + sizeBehind(entries.Key()) + sizeBehind(entries.Value())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			size += sizeBehind(v.Field(i))
		}
	}
	return size
}
