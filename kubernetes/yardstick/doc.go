// Package yardstick holds tests that compare Outboard with kube-scheduler's own plugins, which
// run in kube-scheduler's own scheduling framework, on random clusters:
//
//   - what package kubescheduler says of which nodes kube-scheduler rules out, and why, with
//     the filters of the default profile;
//   - where package simulate places pods, with the default profile's scores;
//   - the policy ImageLocality with the plugin of that name;
//   - rules written in CEL, as the policy Rules runs them, with NodeResourcesFit,
//     TaintToleration and NodeAffinity.
//
// The random pods have what these read, and nothing that other plugins of the default profile
// look at, which run, too.
package yardstick
