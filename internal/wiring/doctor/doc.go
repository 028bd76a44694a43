// Package doctor reports problems of a KubeSchedulerConfiguration that calls extenders: fields that
// kube-scheduler rejects, fields with unexpected effects, and contradictions to Outboard's
// configuration or to a cluster. It reads only [Input].
//
// [Check] returns findings. Each has a stable code, and [Codes] describes each code. It changes no
// file: a finding says what to write.
//
// An examination has three steps. The text is decoded as kube-scheduler decodes it: whether it can
// be is decided by kube-scheduler's own decoder, for the types of its API. Names and values that
// are obviously misspelled are corrected in memory, each with a finding. Then the corrected
// configuration is checked, so that one run finds all problems.
package doctor
