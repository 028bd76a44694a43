package main

import (
	"fmt"
	"go/ast"
	"path/filepath"
	"regexp"
	"strings"
)

// failure is an error in the events of pods that is no reason of a policy.
type failure struct {
	folder string // in internal
	text   string // a string literal of the folder, with verbs
	names  []string
	do     string
}

var verb = regexp.MustCompile(`%[a-z]`)

// shown returns the text with names in place of verbs.
func (f *failure) shown() string {
	i := 0
	return verb.ReplaceAllStringFunc(f.text, func(string) string {
		i++
		if i > len(f.names) {
			return "…"
		}
		return f.names[i-1]
	})
}

// bindFailures are the errors of bind calls: kube-scheduler retries the pod.
var bindFailures = []failure{
	{"extender", "node %q does not fit any more: %s", []string{"NODE", "REASON"}, "Nothing: another pod was faster, and kube-scheduler retries. If it is frequent, compare `outboard_cluster_view_age_seconds`."},
	{"extender", "node %q is not known to Outboard yet", []string{"NODE"}, "Wait: the node has just been created."},
	{"extender", "pod %s has schedulerName %q, which is not among the schedulerNames of profile %s: %s", []string{"POD", "NAME", "PATH", "NAMES"}, "Add the scheduler to `schedulerNames` of the profile."},
	{"extender", "pod %s requests none of the managedResources of profile %s: %s", []string{"POD", "PATH", "RESOURCES"}, "Make the `managedResources` of kube-scheduler's configuration and of the profile equal: `outboard doctor`."},
	{"extender", "binding needs the API server, and Outboard runs without a cluster", nil, "Set `clientConnection`, or remove `bindVerb` from kube-scheduler's configuration."},
	{"binder", "another pod must be bound to node %s first, and that takes long: the pod with UID %s", []string{"NODE", "UID"}, "Nothing: kube-scheduler retries. If it is frequent, the API server is slow."},
	{"binder", "the Binding was withdrawn, and the claims of the pod were released: %w", []string{"ERROR"}, "Nothing: kube-scheduler retries. `ERROR` is the cause."},
	{"binder", "%w; its claims stay for now: %w", []string{"ERROR", "ERROR"}, "Nothing at first: the claims are released after `ledgers.reclaimAfter` unless the pod is bound. Resolve the cause."},
	{"binder", "the pod has changed", nil, "Nothing: kube-scheduler retries with the new version of the pod."},
	{"binder", "it is not known whether the pod was bound", nil, "See [When an answer is lost](../claims.md#when-an-answer-is-lost)."},
	{"cluster", "too many pods are being bound concurrently", nil, "Increase `clientConnection.qps` and `clientConnection.burst`."},
	{"ledger", "the API server does not serve %s: install the Ledger CRD: kubectl apply -f deploy/chart/crds/ledgers.yaml", []string{"ledgers.outboard.dev"}, "Run the command."},
	{"ledger", "the object with the ledger's name is for another resource or node", nil, "Run `outboard audit`, and delete that Ledger if no pod needs it."},
	{"ledger", "the claim was not written: it was still queued behind other writes", nil, "Nothing: kube-scheduler retries. If it is frequent, see `outboard_ledger_write_duration_seconds`."},
	{"ledger", "it is unknown whether the claim was written: %w", []string{"ERROR"}, "Nothing: the claim is released if the pod does not need it. Check the latency of the API server."},
	{"ledger", "ledger %s: %d pods have claims, the limit of a ledger", []string{"NAME", "N"}, "Divide the resource, for example a license into two features."},
	{"engine", "it allocates resources, but there are no ledgers for its claims", nil, "Set `clientConnection`: the policy needs a cluster."},
	{"engine", "it allocates %s, and so does policy %s", []string{"RESOURCE", "POLICY"}, "Remove one of the two policies from the profile."},
	{"engine", "annotation %q is already set to another value by policy %s", []string{"KEY", "POLICY"}, "Configure different annotations for the two policies."},
}

// callFailures are the errors of calls of other verbs too.
var callFailures = []failure{
	{"extender", "the request has only node names, and Outboard runs without a cluster: set nodeCacheCapable: false in the scheduler's configuration, or configure a cluster", nil, "Do one of the two."},
	{"extender", "preempt needs to know the pods on the nodes, and Outboard runs without a cluster", nil, "Set `clientConnection`, or remove `preemptVerb` from kube-scheduler's configuration."},
	{"extender", "decoding the request: %w", []string{"ERROR"}, "Check that kube-scheduler calls this URL: `outboard doctor`."},
	{"extender", "internal error: %v", []string{"ERROR"}, "Report it with the log of Outboard."},
	{"server", "client %q is not allowed to call", []string{"NAME"}, "Add the name to `serving.tls.allowedClients` and restart Outboard, or give kube-scheduler a certificate with an allowed name."},
	{"server", "server busy", nil, "See [Limits](../operations.md#limits): increase `serving.maxInFlightBytes`, or set `nodeCacheCapable: true`."},
	{"cluster", "not read from the API server yet: %s", []string{"RESOURCE"}, "Wait until the resource is read. If the text has a cause in brackets, resolve it."},
}

// failures writes the tables of errors. Each text must be in the code.
func failures(d *document, root string) error {
	for _, part := range []struct {
		heading, about string
		all            []failure
	}{
		{"Errors of bind calls", "kube-scheduler reports them in the event `FailedScheduling`, and retries the pod. Names in capitals stand for values.", bindFailures},
		{"Errors of any call", "An error of filter, preempt or bind fails the attempt, and kube-scheduler retries the pod. It ignores errors of prioritize, and, of an\n" +
			"`ignorable` extender, those of filter and preempt.", callFailures},
	} {
		d.line("## %s\n\n%s\n", part.heading, part.about)
		var rows [][]string
		for _, f := range part.all {
			if err := f.check(root); err != nil {
				return err
			}
			rows = append(rows, []string{plain(f.shown()), f.do})
		}
		d.table([]string{"Error", "What to do"}, rows)
	}
	return nil
}

// check returns an error if the text is not in the code.
func (f *failure) check(root string) error {
	files, err := parseFolder(filepath.Join(root, "internal", f.folder))
	if err != nil {
		return err
	}
	found := false
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				value, isText := text(e)
				found = found || isText && strings.Contains(value, f.text)
			}
			return true
		})
	}
	if !found {
		return fmt.Errorf("no text in internal/%s contains %q", f.folder, f.text)
	}
	return nil
}
