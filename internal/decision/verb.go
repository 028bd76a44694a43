package decision

// Verb is a verb of an extender, by the last part of its usual URL.
type Verb string

// The verbs.
const (
	Filter     Verb = "filter"
	Prioritize Verb = "prioritize"
	Preempt    Verb = "preempt"
	Bind       Verb = "bind"
)

// Verbs returns all verbs in the order in which kube-scheduler calls them, as a new slice.
func Verbs() []Verb { return []Verb{Filter, Prioritize, Preempt, Bind} }

// Field returns the field of an extender in a KubeSchedulerConfiguration that makes kube-scheduler
// call the verb, such as filterVerb.
func (v Verb) Field() string { return string(v) + "Verb" }
