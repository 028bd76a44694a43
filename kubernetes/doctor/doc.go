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
// The file testdata/kube-scheduler.txt says what kube-scheduler does with each file of the corpus.
//
// # What must hold
//
//   - A file that kube-scheduler does not start with because of an extender, or because it cannot read the file, has an error
//     that names the same field, or the same line if the file cannot be parsed. What kube-scheduler says of its other fields is
//     its own business, and a file that does not exist on this machine does not count.
//   - A file with which it starts has no error that says otherwise.
//
// Known exceptions are in a table, with the reason.
package doctor
