package binder

import "hash/maphash"

// table is a map whose copies share everything but the changed entries: to copy and change it, or to find the changes between two copies,
// costs O(tableSize), and reads the entries of the changed lists only. Entries are immutable. The zero table is empty.
type table[K comparable, V any] struct {
	lists [tableSize]*entry[K, V]
}

// tableSize keeps a copy small, at 512 bytes, and the lists short, with some hundred entries.
const tableSize = 64

// entry is one of a list.
type entry[K comparable, V any] struct {
	key   K
	value V
	next  *entry[K, V]
}

// hashSeed is one for all tables, so that copies have a key in the same list.
var hashSeed = maphash.MakeSeed()

func (t *table[K, V]) list(key K) **entry[K, V] {
	return &t.lists[maphash.Comparable(hashSeed, key)%tableSize]
}

// get returns the value of the key, or the zero value.
func (t *table[K, V]) get(key K) (value V) {
	for e := *t.list(key); e != nil; e = e.next {
		if e.key == key {
			return e.value
		}
	}
	return value
}

// set sets the value of the key, and changes no copy of the table.
func (t *table[K, V]) set(key K, value V) {
	t.remove(key)
	list := t.list(key)
	*list = &entry[K, V]{key, value, *list}
}

// remove removes the key, if it is there, and changes no copy of the table.
func (t *table[K, V]) remove(key K) {
	list := t.list(key)
	var rest *entry[K, V]
	for e := *list; e != nil; e = e.next {
		if e.key != key {
			rest = &entry[K, V]{e.key, e.value, rest}
		}
	}
	*list = rest
}
