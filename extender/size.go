package extender

import "reflect"

// sizeOf is how much memory an object takes with everything that it points to. Memory
// that it shares with others counts as well.
func sizeOf(object any) int64 {
	v := reflect.ValueOf(object)
	return int64(v.Type().Size()) + sizeBehind(v)
}

// mapShare is how much of a map's memory its entries take, as one in so many.
const mapShare = 2

// sizeBehind is the size of what a value points to.
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
