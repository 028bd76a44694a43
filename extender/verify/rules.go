package verify

import "slices"

// Severity says how bad it is to break a rule.
type Severity string

const (
	// SeverityError: pods are lost, stay pending for no visible reason, are placed
	// where they should not be, or kube-scheduler itself is harmed.
	SeverityError Severity = "error"
	// SeverityWarning: it costs something, or will surprise somebody.
	SeverityWarning Severity = "warning"
	// SeverityInfo: good to know.
	SeverityInfo Severity = "info"
)

// Rule is one rule of the wire contract.
type Rule struct {
	// ID is stable between versions.
	ID string `json:"id"`
	// Severity of breaking it.
	Severity Severity `json:"severity"`
	// Statement is the rule, in one line.
	Statement string `json:"statement"`
	// Consequence is what follows in kube-scheduler when it is broken.
	Consequence string `json:"consequence"`

	verbs []string // the verbs it is about; nil is all
	needs string   // what was missing when it could not be judged
}

const (
	verbFilter     = "filter"
	verbPrioritize = "prioritize"
	verbPreempt    = "preempt"
	verbBind       = "bind"
)

const (
	ruleAnswers      = "answers"
	ruleInTime       = "in-time"
	ruleBounded      = "bounded"
	ruleStatus       = "status-200"
	ruleRedirect     = "no-redirect"
	ruleJSON         = "json"
	ruleNoError      = "no-error"
	ruleMode         = "mode"
	ruleSubset       = "subset"
	ruleOrder        = "order"
	ruleDuplicates   = "no-duplicates"
	ruleReasons      = "reasons"
	ruleReasonsGroup = "reasons-group"
	ruleFailedKnown  = "failed-known"
	ruleDisjoint     = "failed-disjoint"
	ruleNotPassed    = "failed-not-passed"
	ruleUnchanged    = "nodes-unchanged"
	ruleScoreRange   = "score-range"
	ruleScoreKnown   = "score-known"
	ruleScoreOnce    = "score-once"
	ruleScoreAll     = "score-all"
	rulePreemptForm  = "preempt-form"
	rulePreemptNull  = "preempt-null"
	rulePreemptNodes = "preempt-nodes"
	rulePreemptEmpty = "preempt-not-empty"
	rulePreemptKnown = "preempt-known"
	rulePreemptKeeps = "preempt-untrimmed"
	rulePreemptPDB   = "preempt-pdb"
	ruleBindUnknown  = "bind-unknown-pod"
	ruleSame         = "same-answer"
	ruleIndependent  = "order-independent"
	ruleNoEffect     = "no-side-effects"
	ruleReuse        = "connection-reuse"
	ruleConcurrent   = "concurrent"
	ruleLarge        = "large-question"
	ruleEncrypted    = "encrypted"
	ruleVerified     = "server-verified"
	ruleClientCert   = "client-certificate"
	ruleHTTP1        = "http1"
	ruleForms        = "json-forms"
	ruleOdd          = "odd-input"
	ruleRefuses      = "bad-input-refused"
	ruleErrorForm    = "error-form"
	ruleMethod       = "method"
	ruleUnknownPath  = "unknown-path"
	ruleSurvives     = "survives"
)

var (
	filterOnly     = []string{verbFilter}
	prioritizeOnly = []string{verbPrioritize}
	preemptOnly    = []string{verbPreempt}
	readVerbs      = []string{verbFilter, verbPrioritize}
)

// Rules returns every rule, in the order of the report.
func Rules() []Rule { return slices.Clone(rules) }

var rules = []Rule{
	{ID: ruleAnswers, Severity: SeverityError,
		Statement:   "every question gets a complete HTTP reply",
		Consequence: "The pod's scheduling cycle fails (filter), its preemption or bind fails, or its scores are lost without a trace (prioritize). With ignorable: true it is placed without the extender's judgement."},
	{ID: ruleInTime, Severity: SeverityError,
		Statement:   "the reply is complete within httpTimeout",
		Consequence: "kube-scheduler waits for the whole timeout, placing no other pod meanwhile, and then treats the call as failed. There is no retry."},
	{ID: ruleBounded, Severity: SeverityError,
		Statement:   "the size of an answer stays in proportion to its question",
		Consequence: "kube-scheduler has no limit of its own: it reads until httpTimeout or until it is out of memory."},
	{ID: ruleStatus, Severity: SeverityError,
		Statement:   "a well-formed question is answered with status 200",
		Consequence: "Any other status fails the call, and the body is dropped: the pod's event says \"code 500\" and not why."},
	{ID: ruleRedirect, Severity: SeverityWarning,
		Statement:   "a verb is answered at its own address, without a redirect",
		Consequence: "Each call costs a second one; and 301, 302 and 303 turn the POST into a GET without a body."},
	{ID: ruleJSON, Severity: SeverityError,
		Statement:   "the answer is JSON of the verb's type",
		Consequence: "The call fails with the decoder's message (an empty body is \"EOF\")."},
	{ID: ruleNoError, Severity: SeverityError, verbs: filterOnly,
		Statement:   "a well-formed question about known nodes is judged, not refused with Error",
		Consequence: "The pod's scheduling cycle fails with this text, for all nodes at once; preemption is not tried."},

	{ID: ruleMode, Severity: SeverityError, verbs: filterOnly,
		Statement:   "the reply is in the mode asked: names to names, nodes to nodes",
		Consequence: "Names where nodes were asked reject every node without a reason. Nodes where names were asked are taken as they are: unchecked objects of the extender's, with no pods on them."},
	{ID: ruleSubset, Severity: SeverityError, verbs: filterOnly,
		Statement:   "only nodes that were asked about pass",
		Consequence: "With names the pod's cycle fails (\"claims a filtered node … which is not found in the input node list\"). With nodes nothing is checked: the pod is bound to a node that was ruled out, or does not exist."},
	{ID: ruleOrder, Severity: SeverityWarning, verbs: filterOnly, needs: "no answer with two nodes that pass",
		Statement:   "nodes that pass keep the order of the question",
		Consequence: "Without prioritize, ties go to the first node in the list, which kube-scheduler rotates to spread pods; another order undoes that."},
	{ID: ruleDuplicates, Severity: SeverityWarning, verbs: filterOnly, needs: "no answer with a node that passes",
		Statement:   "no node passes twice",
		Consequence: "The node is scored twice, and a single node is no longer placed on directly."},
	{ID: ruleReasons, Severity: SeverityError, verbs: filterOnly, needs: "no question was answered with all nodes rejected",
		Statement:   "when no node passes, every node has a reason",
		Consequence: "Nodes without one count as unresolvable: the pod's event does not say why it is pending, and preemption never looks at them. {} leaves a pod pending with no text at all."},
	{ID: ruleReasonsGroup, Severity: SeverityWarning, verbs: filterOnly, needs: "no answer with eight rejected nodes",
		Statement:   "nodes rejected for the same reason have the same text",
		Consequence: "kube-scheduler groups equal texts (\"12 no GPU has enough memory\"). A node's name or numbers in the text make one line into hundreds."},
	{ID: ruleFailedKnown, Severity: SeverityWarning, verbs: filterOnly, needs: "no answer with a rejected node",
		Statement:   "only nodes that were asked about are listed as failed",
		Consequence: "The counts in the pod's event are wrong, and other nodes lose their default reason."},
	{ID: ruleDisjoint, Severity: SeverityWarning, verbs: filterOnly, needs: "no answer with a rejected node",
		Statement:   "no node is in both FailedNodes and FailedAndUnresolvableNodes",
		Consequence: "The second wins: preemption never looks at the node, and the reason in FailedNodes is not shown."},
	{ID: ruleNotPassed, Severity: SeverityError, verbs: filterOnly, needs: "no answer with a rejected node",
		Statement:   "no node both passes and fails",
		Consequence: "It passes: the pod may be placed on a node that the extender says it rejects."},
	{ID: ruleUnchanged, Severity: SeverityError, verbs: filterOnly, needs: "no node was returned in nodes mode",
		Statement:   "nodes come back as they were sent",
		Consequence: "kube-scheduler goes on with the returned objects: what is dropped or changed (labels, taints, fields newer than the extender's libraries) is so for every later plugin."},

	{ID: ruleScoreRange, Severity: SeverityError, verbs: prioritizeOnly, needs: "no answer with a score",
		Statement:   "scores are between 0 and 10",
		Consequence: "Scores are not clamped: the score is multiplied by the weight and by 10, so 100 outweighs all of kube-scheduler's own scores, and a very large one overflows."},
	{ID: ruleScoreKnown, Severity: SeverityWarning, verbs: prioritizeOnly, needs: "no answer with a score",
		Statement:   "only nodes that were asked about are scored",
		Consequence: "The score is dropped without a word; often a sign of names that are spelt in another way."},
	{ID: ruleScoreOnce, Severity: SeverityError, verbs: prioritizeOnly, needs: "no answer with a score",
		Statement:   "no node is scored twice",
		Consequence: "The scores are added up, so the node outbids better ones."},
	{ID: ruleScoreAll, Severity: SeverityInfo, verbs: prioritizeOnly, needs: "no answer with a score",
		Statement:   "every node that was asked about is scored",
		Consequence: "A node that is left out counts 0, which is also a way to keep answers short."},

	{ID: rulePreemptForm, Severity: SeverityError, verbs: preemptOnly,
		Statement:   "preempt answers with NodeNameToMetaVictims, in either mode",
		Consequence: "NodeNameToVictims is not read: no candidate is left and the pod stays pending."},
	{ID: rulePreemptNull, Severity: SeverityError, verbs: preemptOnly,
		Statement:   "preempt's answer has no null entry",
		Consequence: "kube-scheduler dereferences it and crashes."},
	{ID: rulePreemptNodes, Severity: SeverityError, verbs: preemptOnly,
		Statement:   "preempt answers only about nodes that were asked about",
		Consequence: "Preemption fails, or evicts pods on a node where that does not help."},
	{ID: rulePreemptEmpty, Severity: SeverityError, verbs: preemptOnly, needs: "no candidate was kept",
		Statement:   "a node that is kept has at least one victim",
		Consequence: "Preemption fails for all nodes (\"expected at least one victim pod on node\"); with ignorable: true the node is dropped."},
	{ID: rulePreemptKnown, Severity: SeverityError, verbs: preemptOnly, needs: "no candidate was kept",
		Statement:   "every victim is a pod on its node, named by UID",
		Consequence: "Preemption fails for all nodes (\"claims to preempt pod … but the pod is not found on that node\")."},
	{ID: rulePreemptKeeps, Severity: SeverityError, verbs: preemptOnly, needs: "no candidate was kept",
		Statement:   "a node that is kept keeps all victims it was offered with",
		Consequence: "kube-scheduler has already spared all it could: with fewer victims pods are evicted and the waiting pod still does not fit."},
	{ID: rulePreemptPDB, Severity: SeverityWarning, verbs: preemptOnly, needs: "no candidate was kept",
		Statement:   "NumPDBViolations is not lowered",
		Consequence: "The node looks cheaper than it is, and a disruption budget is violated where another node needed none."},

	{ID: ruleBindUnknown, Severity: SeverityError, verbs: []string{verbBind},
		Statement:   "binding a pod that does not exist gives Error",
		Consequence: "kube-scheduler takes the pod for bound and holds its resources, while it is not."},

	{ID: ruleSame, Severity: SeverityWarning,
		Statement:   "the same question gets the same answer",
		Consequence: "A pod's fate depends on chance, and no explanation of it can be trusted. (A fact that changed meanwhile looks the same: run again.)"},
	{ID: ruleIndependent, Severity: SeverityWarning, verbs: readVerbs, needs: "answers differ by themselves",
		Statement:   "a node's verdict does not depend on the order of the nodes",
		Consequence: "kube-scheduler rotates the list with every pod, so the verdict changes from one attempt to the next."},
	{ID: ruleNoEffect, Severity: SeverityError, verbs: readVerbs, needs: "answers differ by themselves",
		Statement:   "asking changes nothing",
		Consequence: "kube-scheduler asks about pods that are then not placed, or placed elsewhere, and says so to nobody: what a question reserves is lost. The cluster autoscaler asks about imaginary nodes."},

	{ID: ruleReuse, Severity: SeverityWarning, verbs: readVerbs,
		Statement:   "consecutive calls share a connection",
		Consequence: "kube-scheduler stops reading at the end of the JSON value, so after a chunked answer the connection is thrown away: a new one, with TLS a new handshake, for each call. Send an exact Content-Length and no trailing newline."},
	{ID: ruleConcurrent, Severity: SeverityError, verbs: readVerbs, needs: "answers differ by themselves",
		Statement:   "calls at the same time get the answers they get one by one",
		Consequence: "Several schedulers, or the next pod's cycle beside a slow call, get each other's answers or none."},
	{ID: ruleLarge, Severity: SeverityError, verbs: readVerbs,
		Statement:   "a question of the largest size is judged like a small one",
		Consequence: "In a cluster of this size every call fails; often a body limit."},

	{ID: ruleEncrypted, Severity: SeverityWarning,
		Statement:   "calls are encrypted (https)",
		Consequence: "Pods, with their environment, cross the network in the clear, and anybody on the way can answer."},
	{ID: ruleVerified, Severity: SeverityWarning, needs: "plain http",
		Statement:   "the server's certificate is checked against a CA",
		Consequence: "With enableHTTPS: true and no CA kube-scheduler checks nothing and does not say so: encrypted, but to anybody."},
	{ID: ruleClientCert, Severity: SeverityWarning, needs: "plain http, or nothing to compare",
		Statement:   "a caller without a client certificate is refused",
		Consequence: "Whoever reaches the address can ask, and bind pods if bind is served. (Info only where it is not.)"},
	{ID: ruleHTTP1, Severity: SeverityInfo, needs: "plain http",
		Statement:   "HTTP/1.1 is spoken",
		Consequence: "HTTP/2 puts all calls on one connection, so one replica behind a Service gets all of them."},

	{ID: ruleForms, Severity: SeverityWarning, needs: "answers differ by themselves",
		Statement:   "the same question in another JSON spelling gets the same answer",
		Consequence: "Works with today's kube-scheduler only: key case, key order, new keys and spaces are free to change."},
	{ID: ruleOdd, Severity: SeverityWarning,
		Statement:   "odd questions get a reply that is well-formed",
		Consequence: "kube-scheduler does not ask them, but the autoscaler, tools and attackers do. A connection cut without a reply is often a panic."},
	{ID: ruleRefuses, Severity: SeverityWarning,
		Statement:   "what is not a question is not given a verdict",
		Consequence: "A damaged question is taken for an empty one: nodes are rejected or scored, or a pod is reported as bound, for no reason that can be found."},
	{ID: ruleErrorForm, Severity: SeverityWarning, verbs: []string{verbFilter, verbBind},
		Statement:   "a refusal is status 200 with Error, not another status or a text",
		Consequence: "kube-scheduler drops the body of any status but 200: the user reads \"code 400\" instead of the reason."},
	{ID: ruleMethod, Severity: SeverityInfo,
		Statement:   "GET is not answered as if it were a question",
		Consequence: "A probe or a browser can act as a caller."},
	{ID: ruleUnknownPath, Severity: SeverityWarning,
		Statement:   "an unknown path is not answered with 200",
		Consequence: "A misspelt verb in kube-scheduler's configuration is not noticed."},
	{ID: ruleSurvives, Severity: SeverityError,
		Statement:   "after an odd question the extender answers as before",
		Consequence: "Anybody who can reach the address can stop the scheduling of all pods."},
}
