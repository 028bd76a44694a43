// Package doctor reports problems of a KubeSchedulerConfiguration that calls extenders: fields that
// kube-scheduler rejects, fields with unexpected effects, and contradictions to Outboard's configuration or
// to a cluster. It reads only [Input].
//
// [Check] returns findings. Each has a stable code, and docs/doctor.md describes each code. [Fix]
// returns the file with the corrections of all findings that have exactly one. It keeps comments
// and unknown fields.
package doctor
