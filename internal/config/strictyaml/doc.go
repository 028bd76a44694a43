// Package strictyaml decodes YAML into Go values strictly: unknown and ambiguous
// input is an error with its line and path, and all errors of a document are
// reported together.
//
// [Parse] reads the text, [Value.Decode] sets a Go value from it, and
// [Marshal] writes a value as text that decodes to the same value.
//
// # What is accepted
//
// One document of YAML (so also of JSON, unless it escapes a slash or a surrogate
// pair, which YAML does not support), in UTF-8, of at most [MaxBytes], with
// mappings, lists, strings, true, false, null, and numbers in the syntax of JSON.
// A null is the same as an absent field. Anchors and aliases are
// accepted if the document is small enough after expanding them.
//
// Not accepted: a key twice; keys that are not strings; several documents; tags
// (!!str), directives (%YAML) and merge keys (<<); and unquoted words that YAML
// 1.1 and 1.2, or YAML and JSON, read differently, such as yes, off, 0x1F, 010 or
// 1_000.
//
// # How Go values are set
//
// The names of struct fields are their json tags, in exactly that case; embedded
// structs are inline, as in encoding/json. Fields that the text does not name keep
// their value, so set defaults before decoding; lists and maps are replaced
// as a whole. Decoding creates elements of lists and maps, and structs behind nil
// pointers: if they have a method SetDefaults(), it calls that first.
//
// time.Duration and metav1.Duration are written as "1m30s". A type with
// UnmarshalJSON (resource.Quantity, intstr.IntOrString) gets its part of the
// document as JSON. A type with UnmarshalText gets a string; if it is a struct
// and its part of the document is a mapping, it is set like any struct. A
// [Value] keeps its part of the document, to decode it later.
package strictyaml
