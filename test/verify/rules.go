package main

import "outboard.dev/outboard/internal/decision"

// Severity is the severity of a violation.
type Severity string

const (
	// SeverityError: pods are lost, stay pending for no visible reason, are placed
	// where they should not be, or kube-scheduler itself is harmed.
	SeverityError Severity = "error"
	// SeverityWarning: scheduling gets slower, or behaves unexpectedly.
	SeverityWarning Severity = "warning"
	// SeverityNote: for information.
	SeverityNote Severity = "note"
)

// Rule is one rule of the wire contract.
type Rule struct {
	ID string
	// Severity is that of a violation.
	Severity Severity
	// Statement is the rule, in one line.
	Statement string
	// Consequence is the effect of a violation in kube-scheduler.
	Consequence string

	verbs []decision.Verb // the verbs it applies to; nil: all
	needs string          // what was missing when it could not be checked
}

const (
	ruleResponses    = "responses"
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
	ruleSame         = "same-response"
	ruleIndependent  = "order-independent"
	ruleNoEffect     = "no-side-effects"
	ruleReuse        = "connection-reuse"
	ruleConcurrent   = "concurrent"
	ruleLarge        = "large-request"
	ruleEncrypted    = "encrypted"
	ruleVerified     = "server-verified"
	ruleClientCert   = "client-certificate"
	ruleHTTP1        = "http1"
	ruleForms        = "json-forms"
	ruleMalformed    = "malformed-input"
	ruleRejects      = "malformed-rejected"
	ruleErrorForm    = "error-form"
	ruleMethod       = "method"
	ruleUnknownPath  = "unknown-path"
	ruleSurvives     = "survives"
)

var (
	filterOnly     = []decision.Verb{decision.Filter}
	prioritizeOnly = []decision.Verb{decision.Prioritize}
	preemptOnly    = []decision.Verb{decision.Preempt}
	readVerbs      = []decision.Verb{decision.Filter, decision.Prioritize}
)

var rules = []Rule{
	{ID: ruleResponses, Severity: SeverityError,
		Statement:   "every request gets a complete HTTP response",
		Consequence: "The pod's scheduling cycle fails (filter), its preemption or bind fails, or its scores are silently lost (prioritize). With ignorable: true the pod is placed without the extender."},
	{ID: ruleInTime, Severity: SeverityError,
		Statement:   "the response is complete within httpTimeout",
		Consequence: "kube-scheduler waits for the whole timeout, schedules no other pod meanwhile, and then treats the call as failed. It does not retry the call."},
	{ID: ruleBounded, Severity: SeverityError,
		Statement:   "the size of a response is proportional to its request",
		Consequence: "kube-scheduler has no limit of its own: it reads until httpTimeout or until it is out of memory."},
	{ID: ruleStatus, Severity: SeverityError,
		Statement:   "a well-formed request gets status 200",
		Consequence: "Any other status fails the call, and kube-scheduler drops the body: the pod's event says \"code 500\" and not why."},
	{ID: ruleRedirect, Severity: SeverityWarning,
		Statement:   "a verb responds at its own address, without a redirect",
		Consequence: "Each call costs a second one; 301, 302 and 303 turn the POST into a GET without a body."},
	{ID: ruleJSON, Severity: SeverityError,
		Statement:   "the response is JSON of the verb's type",
		Consequence: "The call fails with the decoder's message (an empty body is \"EOF\")."},
	{ID: ruleNoError, Severity: SeverityError, verbs: filterOnly,
		Statement:   "a well-formed request about known nodes does not get Error",
		Consequence: "The pod's scheduling cycle fails with this text, for all nodes at once; preemption is not tried."},

	{ID: ruleMode, Severity: SeverityError, verbs: filterOnly,
		Statement:   "the response is in the mode of the request: names for names, nodes for nodes",
		Consequence: "Names in response to nodes reject every node without a reason. Nodes in response to names are used unchecked: objects of the extender, with no pods on them."},
	{ID: ruleSubset, Severity: SeverityError, verbs: filterOnly,
		Statement:   "only nodes of the request pass",
		Consequence: "With names the pod's cycle fails (\"claims a filtered node … which is not found in the input node list\"). With nodes, kube-scheduler checks nothing: it binds the pod to a node that it had ruled out, or that does not exist."},
	{ID: ruleOrder, Severity: SeverityWarning, verbs: filterOnly, needs: "no response with two nodes that pass",
		Statement:   "nodes that pass keep the order of the request",
		Consequence: "Without prioritize, ties go to the first node in the list, which kube-scheduler rotates to spread pods; another order undoes that."},
	{ID: ruleDuplicates, Severity: SeverityWarning, verbs: filterOnly, needs: "no response with a node that passes",
		Statement:   "no node passes twice",
		Consequence: "The node is scored twice, and a single node no longer skips scoring."},
	{ID: ruleReasons, Severity: SeverityError, verbs: filterOnly, needs: "no response rejected all nodes",
		Statement:   "when no node passes, every node has a reason",
		Consequence: "Nodes without one count as unresolvable: the pod's event does not say why it is pending, and preemption skips them. {} leaves a pod pending with no text at all."},
	{ID: ruleReasonsGroup, Severity: SeverityWarning, verbs: filterOnly, needs: "no response with eight rejected nodes",
		Statement:   "nodes rejected for the same reason have the same text",
		Consequence: "kube-scheduler groups equal texts (\"12 no GPU has enough memory\"). A node's name or numbers in the text turn one line into hundreds."},
	{ID: ruleFailedKnown, Severity: SeverityWarning, verbs: filterOnly, needs: "no response with a rejected node",
		Statement:   "only nodes of the request are listed as failed",
		Consequence: "The counts in the pod's event are wrong, and other nodes lose their default reason."},
	{ID: ruleDisjoint, Severity: SeverityWarning, verbs: filterOnly, needs: "no response with a rejected node",
		Statement:   "no node is in both FailedNodes and FailedAndUnresolvableNodes",
		Consequence: "The second wins: preemption skips the node, and the reason in FailedNodes is not shown."},
	{ID: ruleNotPassed, Severity: SeverityError, verbs: filterOnly, needs: "no response with a rejected node",
		Statement:   "no node both passes and fails",
		Consequence: "It passes: the pod may be placed on a node that the extender rejects."},
	{ID: ruleUnchanged, Severity: SeverityError, verbs: filterOnly, needs: "no node was returned in nodes mode",
		Statement:   "nodes are returned unchanged",
		Consequence: "kube-scheduler continues with the returned objects: dropped or changed parts (labels, taints, fields newer than the extender's libraries) affect every later plugin."},

	{ID: ruleScoreRange, Severity: SeverityError, verbs: prioritizeOnly, needs: "no response with a score",
		Statement:   "scores are between 0 and 10",
		Consequence: "Scores are not clamped: the score is multiplied by the weight and by 10, so 100 outweighs all of kube-scheduler's own scores, and a very large one overflows."},
	{ID: ruleScoreKnown, Severity: SeverityWarning, verbs: prioritizeOnly, needs: "no response with a score",
		Statement:   "only nodes of the request are scored",
		Consequence: "kube-scheduler silently drops the score; often the node is spelled in another way."},
	{ID: ruleScoreOnce, Severity: SeverityError, verbs: prioritizeOnly, needs: "no response with a score",
		Statement:   "no node is scored twice",
		Consequence: "The scores are added up, so the node outranks better ones."},
	{ID: ruleScoreAll, Severity: SeverityNote, verbs: prioritizeOnly, needs: "no response with a score",
		Statement:   "every node of the request is scored",
		Consequence: "A node without a score gets 0, which also keeps responses short."},

	{ID: rulePreemptForm, Severity: SeverityError, verbs: preemptOnly,
		Statement:   "preempt responds with NodeNameToMetaVictims, in either mode",
		Consequence: "kube-scheduler does not read NodeNameToVictims: no candidate is left and the pod stays pending."},
	{ID: rulePreemptNull, Severity: SeverityError, verbs: preemptOnly,
		Statement:   "the response to preempt has no null entry",
		Consequence: "kube-scheduler dereferences it and crashes."},
	{ID: rulePreemptNodes, Severity: SeverityError, verbs: preemptOnly,
		Statement:   "the response to preempt has only nodes of the request",
		Consequence: "Preemption fails, or evicts pods on a node where that does not help."},
	{ID: rulePreemptEmpty, Severity: SeverityError, verbs: preemptOnly, needs: "no candidate was kept",
		Statement:   "a kept node has at least one victim",
		Consequence: "Preemption fails for all nodes (\"expected at least one victim pod on node\"); with ignorable: true the node is dropped."},
	{ID: rulePreemptKnown, Severity: SeverityError, verbs: preemptOnly, needs: "no candidate was kept",
		Statement:   "every victim is a pod on its node, identified by UID",
		Consequence: "Preemption fails for all nodes (\"allocations to preempt pod … but the pod is not found on that node\")."},
	{ID: rulePreemptKeeps, Severity: SeverityError, verbs: preemptOnly, needs: "no candidate was kept",
		Statement:   "a kept node keeps all its victims",
		Consequence: "kube-scheduler has already reduced the victims to the minimum: with fewer, pods are evicted and the pending pod still does not fit."},
	{ID: rulePreemptPDB, Severity: SeverityWarning, verbs: preemptOnly, needs: "no candidate was kept",
		Statement:   "NumPDBViolations does not decrease",
		Consequence: "The node looks better than it is, and preemption violates a disruption budget although another node needs no violation."},

	{ID: ruleBindUnknown, Severity: SeverityError, verbs: []decision.Verb{decision.Bind},
		Statement:   "binding a pod that does not exist gives Error",
		Consequence: "kube-scheduler considers the pod bound and reserves its resources, although it is not bound."},

	{ID: ruleSame, Severity: SeverityWarning,
		Statement:   "the same request gets the same response",
		Consequence: "Placement is random, and cannot be explained. (A change in the cluster meanwhile looks the same: run again.)"},
	{ID: ruleIndependent, Severity: SeverityWarning, verbs: readVerbs, needs: "responses to the same request differ",
		Statement:   "the result for a node does not depend on the order of the nodes",
		Consequence: "kube-scheduler rotates the list with every pod, so the result changes from one attempt to the next."},
	{ID: ruleNoEffect, Severity: SeverityError, verbs: readVerbs, needs: "responses to the same request differ",
		Statement:   "filter and prioritize have no side effects",
		Consequence: "kube-scheduler asks about pods that it then does not place, or places elsewhere, without telling the extender: what a request reserves is leaked. The cluster autoscaler asks about imaginary nodes."},

	{ID: ruleReuse, Severity: SeverityWarning, verbs: readVerbs,
		Statement:   "consecutive calls share a connection",
		Consequence: "kube-scheduler stops reading at the end of the JSON value, so after a chunked response it closes the connection: each call opens a new one, with a new TLS handshake. Send an exact Content-Length and no trailing newline."},
	{ID: ruleConcurrent, Severity: SeverityError, verbs: readVerbs, needs: "responses to the same request differ",
		Statement:   "concurrent calls get the same responses as sequential ones",
		Consequence: "Several schedulers, or the next pod's cycle during a slow call, get each other's responses or none."},
	{ID: ruleLarge, Severity: SeverityError, verbs: readVerbs,
		Statement:   "a request of the largest size succeeds like a small one",
		Consequence: "In a cluster of this size calls fail: each one if the reason is a body limit, and some if the extender is busy."},

	{ID: ruleEncrypted, Severity: SeverityWarning,
		Statement:   "calls are encrypted (https)",
		Consequence: "Pods, with their environment, cross the network unencrypted, and anybody on the path can respond."},
	{ID: ruleVerified, Severity: SeverityWarning, needs: "plain http",
		Statement:   "the server's certificate is checked against a CA",
		Consequence: "With enableHTTPS: true and no CA, kube-scheduler silently verifies nothing: calls are encrypted, but the server may be anybody."},
	{ID: ruleClientCert, Severity: SeverityWarning, needs: "plain http, or nothing to compare with",
		Statement:   "a caller without a client certificate is rejected",
		Consequence: "Whoever reaches the address can call the extender, and bind pods if it serves bind. (Otherwise of severity note.)"},
	{ID: ruleHTTP1, Severity: SeverityNote, needs: "plain http",
		Statement:   "the server uses HTTP/1.1",
		Consequence: "HTTP/2 sends all calls over one connection, so one replica behind a Service gets all of them."},

	{ID: ruleForms, Severity: SeverityWarning, needs: "responses to the same request differ",
		Statement:   "the same request in an equivalent JSON encoding gets the same response",
		Consequence: "The extender works with this version of kube-scheduler only: key case, key order, new keys and whitespace may change."},
	{ID: ruleMalformed, Severity: SeverityWarning,
		Statement:   "malformed requests get a well-formed response",
		Consequence: "kube-scheduler does not send them, but the autoscaler, tools and attackers do. A connection closed without a response is often a panic."},
	{ID: ruleRejects, Severity: SeverityWarning,
		Statement:   "what is not a valid request gets no result",
		Consequence: "The extender treats a truncated request as an empty one: it rejects or scores nodes, or reports a pod as bound, for no visible reason."},
	{ID: ruleErrorForm, Severity: SeverityWarning, verbs: []decision.Verb{decision.Filter, decision.Bind},
		Statement:   "an error is status 200 with Error, not another status or plain text",
		Consequence: "kube-scheduler drops the body of any status but 200: the user reads \"code 400\" instead of the reason."},
	{ID: ruleMethod, Severity: SeverityNote,
		Statement:   "GET does not get the response to a POST",
		Consequence: "A probe or a browser can act as a caller."},
	{ID: ruleUnknownPath, Severity: SeverityWarning,
		Statement:   "an unknown path does not get status 200",
		Consequence: "A misspelled verb in kube-scheduler's configuration goes unnoticed."},
	{ID: ruleSurvives, Severity: SeverityError,
		Statement:   "after a malformed request the extender responds as before",
		Consequence: "Anybody who can reach the address can stop the scheduling of all pods."},
}
