// Package doctor reports what is wrong with a KubeSchedulerConfiguration that calls extenders: what
// kube-scheduler rejects, what it accepts and silently does otherwise than one expects, and what does
// not go with Outboard's configuration or with a cluster. It reads nothing itself but what [Input]
// holds.
//
// [Check] returns findings. Each has a stable code, and docs/doctor.md describes each code. [Fix]
// returns the file with those findings corrected that have one right correction. It keeps comments
// and fields that it does not know.
package doctor
