package decision

// Verb is one of kube-scheduler's calls of an extender, by the last part of its usual URL.
type Verb string

// The verbs.
const (
	Filter     Verb = "filter"
	Prioritize Verb = "prioritize"
	Preempt    Verb = "preempt"
	Bind       Verb = "bind"
)

// Verbs are all of them.
func Verbs() []Verb { return []Verb{Filter, Prioritize, Preempt, Bind} }
