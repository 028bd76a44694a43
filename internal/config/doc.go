// Package config reads Outboard's configuration file: types, defaults, strict
// loading, validation, and the policies built from it.
//
// # The file
//
// One YAML (or JSON) document. docs/configuring.md has examples, and
// docs/reference/configuration.md all fields with their defaults. Only profiles and serving are
// required. Relative paths of files are relative to the directory of the configuration file. null
// is the same as an absent field. The types of this package describe the fields; package strictyaml
// describes how text is read.
//
// # Rules across fields
//
//   - serving needs tls or insecure: true, if the program serves calls (Types.Unserved). Without tls, its address must be a loopback
//     address. With tls, an address that other hosts can reach needs clientCAFile or insecure: true; for admin, it
//     needs expose: Metrics or All.
//   - No two profiles may have the same path, serve the same URL, or manage the
//     same resource. A profile may have several policies of the same type, with
//     different names.
//   - managedResources, if there are any, include what the profile's policies allocate. Without the field, they follow from the policies.
//   - With verb, path must not be /. shortlist is for filter; schedulerNames is for bind; shortlist and verb: Prioritize need a policy with a
//     weight. verb: Bind and policies that make allocations need a cluster. A policy that makes allocations
//     cannot have failurePolicy: Ignore, except with verb: Prioritize.
//
// # Errors
//
// All errors of a file are reported together, ordered by line, one line each, including
// errors in the configurations of policies:
//
//	config.yaml:14: profiles[0].policies[2].weight: Invalid value: -1: must be between 0 and 100
//	config.yaml:20: serving.tls.clientCaFile: Unknown field: did you mean "clientCAFile"?
//
// [Load] and [Parse] return them as [Errors].
//
// # Schema
//
// [Schema] returns the JSON Schema of the file, for editors. It has the types and defaults of the
// Go types, the rules in the tags of their fields, which package policy/fields checks. It omits
// rules that depend on other fields. TestSchema compares it with the loader, on generated files.
//
// # Reloading
//
// A file is decoded over the defaults and validated, and its policies are built; the result is one
// immutable [Config]. A reload creates a new one and replaces the old one as a whole; if it fails,
// the old one stays in use. Profiles and signals are replaced while serving. The fields of
// [Process] are read once. [Compare] returns what changes, and the consequences of dangerous
// changes. [Config.YAML] returns the current configuration.
package config
