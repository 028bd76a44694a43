// Package doctor holds tests that compare what package wiring/doctor says about configuration files
// of kube-scheduler with what kube-scheduler does with them: it loads, defaults and validates a
// file, and creates a scheduler with its profiles, plugins and extenders. kube-scheduler runs as a
// library.
//
// # The files
//
//   - testdata/mistakes.txtar: a correct file, and 64 files with one mistake each.
//   - testdata/yaml.txtar: YAML and JSON as people write them.
//   - testdata/tutorials.txtar: the file of one tutorial in more of the indentations that its readers may try.
//   - The files of five tutorials and the other examples, docs/check.md, and the test data of wiring/doctor.
//
// A file that kube-scheduler does not start with because of an extender has an error that names the
// same field, and one that it cannot read has an error. A file with which it starts has no error
// that says otherwise.
package doctor
