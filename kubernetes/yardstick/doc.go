// Package yardstick holds tests that compare Outboard with kube-scheduler's own plugins, which
// run in kube-scheduler's own scheduling framework, on random clusters:
//
//   - what package kubescheduler says of which nodes kube-scheduler rules out, and why, with
//     the filters of the default profile;
//   - where package simulate places pods, with the default profile's scores;
//   - in which order the policy ImageLocality puts nodes, with the plugin of that name, where neither the plugin's thresholds nor
//     how many nodes have an image make a difference, which mean nothing to the policy;
//   - on which nodes a pod fits by rules in CEL, as the policy Rules runs them, with the filters of NodeResourcesFit, TaintToleration
//     (rules for each taint, without the operators Lt and Gt) and NodeAffinity (with one term), one after the other.
//
// The random pods have what these read, and nothing that other plugins of the default profile
// look at, which run, too, unless a test names those that do.
//
// A benchmark compares what the framework needs to choose a node without Outboard's plugin, with a
// plugin that does nothing, and with Outboard's.
package yardstick
