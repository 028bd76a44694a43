package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/decision"
)

// Mode is how kube-scheduler names the nodes in a request.
type Mode string

const (
	// ModeAuto calls in both modes first, and then checks those that get a result.
	ModeAuto Mode = ""
	// ModeNames is nodeCacheCapable: true; requests and responses carry node names.
	ModeNames Mode = "names"
	// ModeNodes is nodeCacheCapable: false; requests and responses carry Node objects.
	ModeNodes Mode = "nodes"
	// ModeBoth checks both modes.
	ModeBoth Mode = "both"
)

// Options are the extender to call, and the contents of the requests. Only URL is required.
type Options struct {
	// URL is what kube-scheduler's configuration calls urlPrefix. A verb's address is
	// the URL, a slash and the verb. To check an extender that serves one verb at one
	// address (…/my_new_priorities/image_score), cut off the last part and name it as
	// that verb.
	URL string

	// Verbs are the verbs to check, with the last parts of their addresses. None: filter
	// and prioritize, at these names.
	Verbs map[decision.Verb]string

	// Mode defaults to ModeAuto, the only one with which the command runs.
	Mode Mode

	// TLS is read as kube-scheduler reads the extender's tlsConfig with
	// enableHTTPS: true: without a CA the server's certificate is not checked (and
	// the rule server-verified fails). Ignored when the URL is plain http.
	TLS rest.TLSClientConfig

	// HTTPTimeout bounds each request. 0 means 5 s, as in kube-scheduler.
	HTTPTimeout time.Duration

	// Nodes are nodes the extender knows. An extender with a cache evaluates only nodes
	// that it knows. Without any, imaginary nodes are used.
	Nodes []corev1.Node

	// Pods are the pods on Nodes, by spec.nodeName. Calls of preempt have them
	// as victims, but nothing evicts them. nil means imaginary pods.
	Pods []corev1.Pod

	// Pod is the pod to ask about; a namespace and a UID are added if it has none.
	// nil means an imaginary one. It may be asked about under other names and UIDs.
	Pod *corev1.Pod

	// Sizes are the numbers of nodes in large requests. nil means 500 and 5,000: what kube-scheduler
	// sends in a cluster of 5,000 nodes by default, and at percentageOfNodesToScore:
	// 100. Where fewer nodes are known the rest is imaginary.
	Sizes []int

	// ImaginaryPods is the number of pods asked about to see whether asking has an
	// effect. 0 means 32; a negative number leaves the check out.
	ImaginaryPods int

	// Budget bounds the whole run. The report notes that later calls were not made.
	// 0 means 3 minutes.
	Budget time.Duration
}

// withDefaults returns the options with their defaults, or all errors.
func (o Options) withDefaults() (Options, error) {
	if len(o.Verbs) == 0 {
		o.Verbs = map[decision.Verb]string{decision.Filter: "filter", decision.Prioritize: "prioritize"}
	}
	o.HTTPTimeout = orDefault(o.HTTPTimeout, 5*time.Second)
	o.ImaginaryPods = orDefault(o.ImaginaryPods, 32)
	o.Budget = orDefault(o.Budget, 3*time.Minute)
	if o.Sizes == nil {
		o.Sizes = []int{500, 5000}
	}
	return o, o.validate()
}

func (o Options) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if u, err := url.Parse(o.URL); err != nil {
		withoutPassword := o.URL[strings.LastIndex(o.URL, "@")+1:] // the error of Parse has it
		bad("URL: %q: not a URL: must be http://host… or https://host…", withoutPassword)
	} else if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		bad("URL: %q: must be http://host… or https://host…", u.Redacted())
	}
	if !slices.Contains([]Mode{ModeAuto, ModeNames, ModeNodes, ModeBoth}, o.Mode) {
		bad("mode: %q: must be names, nodes or both, or left out", o.Mode)
	}
	if o.HTTPTimeout < 0 || o.Budget < 0 {
		bad("timeout and budget must not be negative")
	}
	for _, size := range o.Sizes {
		if size < 1 || size > maxSize {
			bad("sizes: %d: must be between 1 and %d", size, maxSize)
		}
	}
	names := make(map[string]bool)
	for i := range o.Nodes {
		if name := o.Nodes[i].Name; name == "" {
			bad("nodes: a node has no name")
		} else if names[name] {
			bad("nodes: %q is given twice", name)
		} else {
			names[name] = true
		}
	}
	return errors.Join(errs...)
}

// maxSize keeps the largest request, with full nodes, within a few hundred MB.
const maxSize = 20000

func (o Options) https() bool { return strings.HasPrefix(strings.ToLower(o.URL), "https:") }

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}
