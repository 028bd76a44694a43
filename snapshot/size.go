package snapshot

import (
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
)

// MaxPod is how much memory one pod may take, in bytes, by [PodSize]. A larger pod that is to be
// placed is rejected.
const MaxPod = 64 << 10

// PodSize returns the memory of a trimmed pod, in bytes. It is the same for equal pods, whatever
// they were decoded from.
func PodSize(pod *corev1.Pod) int64 {
	// A pod of a request may have a kind and another version than the same pod of a watch.
	return SizeOf(pod) - int64(len(pod.Kind)+len(pod.APIVersion)+len(pod.ResourceVersion))
}

// SizeOf returns the memory of an object with everything that it references, including shared
// memory, but without spare capacity.
func SizeOf(object any) int64 {
	v := reflect.ValueOf(object)
	return int64(v.Type().Size()) + sizeBehind(v)
}

// mapShare is the part of a map's memory that its entries take, as one in mapShare.
const mapShare = 2

// The types whose fields depend on how the value was made.
var timeType, quantityType = reflect.TypeFor[time.Time](), reflect.TypeFor[quantity.Quantity]()

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
		size = int64(v.Len()) * int64(v.Type().Elem().Size())
		for i := range v.Len() {
			size += sizeBehind(v.Index(i))
		}
	case reflect.Map:
		return sizeOfMap(v)
	case reflect.Struct:
		if t := v.Type(); t == timeType || t == quantityType {
			return 0
		}
		for i := range v.NumField() {
			size += sizeBehind(v.Field(i))
		}
	}
	return size
}

// sizeOfMap does not allocate for the usual maps.
func sizeOfMap(v reflect.Value) (size int64) {
	if v.Len() == 0 {
		return 0
	}
	entry := mapShare * int64(v.Type().Key().Size()+v.Type().Elem().Size())
	switch m := v.Interface().(type) {
	case map[string]string:
		for key, value := range m {
			size += int64(len(key) + len(value))
		}
	case corev1.ResourceList:
		for name := range m {
			size += int64(len(name))
		}
	default:
		for entries := v.MapRange(); entries.Next(); {
			size += sizeBehind(entries.Key()) + sizeBehind(entries.Value())
		}
	}
	return size + int64(v.Len())*entry
}
