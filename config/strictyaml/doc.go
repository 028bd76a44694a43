// Package strictyaml turns YAML text into Go values and forgives nothing: what
// is not understood, or could be understood in two ways, is an error with its
// line and path, and all errors of a document are found in one go.
//
// [Parse] reads the text, [Value.Decode] fills in a Go value from it, and
// [Marshal] writes such a value back so that decoding it again gives the same.
//
// # What is accepted
//
// One document of YAML (so also of JSON, unless it escapes a slash or a surrogate
// pair, which YAML does not know), in UTF-8, of at most [MaxBytes], made of
// mappings, lists, strings, true, false, null, and numbers as JSON writes them.
// A null is the same as a field that is not there. Anchors and aliases are
// accepted as long as the document stays small when they are written out.
//
// Not accepted: a key twice; keys that are not strings; several documents; tags
// (!!str), directives (%YAML) and merge keys (<<); and unquoted words that YAML
// 1.1 and 1.2, or YAML and JSON, read differently, such as yes, off, 0x1F, 010 or
// 1_000.
//
// # How Go values are filled in
//
// Struct fields are named by their json tags, in exactly that case; embedded
// structs are inline, as in encoding/json. What the text does not name keeps the
// value it had, so defaults are set before decoding; lists and maps are replaced
// as a whole. Elements of lists and maps, and structs behind nil pointers, come
// into being while decoding: if they have a method SetDefaults() it is called
// first.
//
// time.Duration and metav1.Duration are written as "1m30s". A type with
// UnmarshalJSON (resource.Quantity, intstr.IntOrString) is given its part of the
// document as JSON. A type with UnmarshalText is given a string; if it is a struct
// and its part of the document is a mapping, it is filled in like any struct. A
// [Value] keeps its part of the document to be decoded later.
package strictyaml
