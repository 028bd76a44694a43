// Package pending says why a pod waits for a node, or what is wrong with its binding, by what the
// pod and this replica know. The metric outboard_waiting_pods, the page, and the commands waiting
// and explain have the same codes and texts from it.
package pending

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/requeue"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

// The codes, except those of rejections by a policy: "GPUMemory.InsufficientMemory".
const (
	// Gated: the pod has scheduling gates.
	Gated = "gated"
	// NotTried: no scheduler has tried the pod.
	NotTried = "not_tried"
	// Failed: the latest attempt to place the pod failed, such as a call of an extender.
	Failed = "scheduler_error"
	// OtherScheduler: the pod requests what a profile manages, and names a scheduler that the
	// profile does not serve.
	OtherScheduler = "other_scheduler"
	// PolicyFailed: a policy cannot evaluate the pod, such as because of an annotation.
	PolicyFailed = "policy_error"
	// Other: kube-scheduler, another extender or another replica rejected the nodes.
	Other = "other"
	// Unallocated: the pod is on a node without an allocation that its profile requires.
	Unallocated = "unallocated"
)

var titles = map[string]string{
	Gated: "Scheduling gates", NotTried: "No scheduler has tried it", Failed: "The attempt failed",
	OtherScheduler: "It names another scheduler", PolicyFailed: "An error of a policy", Other: "kube-scheduler itself, or another extender",
}

// Title returns a code in a few words, without the policy.
func Title(code string) string { return cmp.Or(titles[code], code[strings.Index(code, ".")+1:]) }

// Source is what is known of pods. All functions may be called concurrently.
type Source struct {
	// Config returns the configuration in use.
	Config func() *config.Config
	// Places reports whether pods like this one are placed with the profile.
	Places func(profile *config.Profile, pod *corev1.Pod) bool
	// Rejected returns why the profile rejected all nodes for the pod; ok is false if it did not.
	// It is nil without a cluster.
	Rejected func(profile string, pod types.UID) (status requeue.Status, ok bool)
}

// Reason is why a pod waits, or what is wrong with its binding.
type Reason struct {
	Code string `json:"code"`
	// Text is what follows "the pod waits:", or where it is.
	Text string `json:"text"`
	// Unserved is the profile that manages what the pod requests, if it serves other schedulers; or
	// "".
	Unserved string `json:"-"`

	// Profile is the one of those that reject the pod which kube-scheduler asked last, about so
	// many Nodes at LastCall; "" if none does. Since is when the first of them rejected it first, or
	// kube-scheduler did, if that was earlier: a profile forgets it when the process restarts.
	Profile   string             `json:"profile,omitempty"`
	Rejection decision.Rejection `json:"-"`
	Nodes     int                `json:"-"`
	LastCall  time.Time          `json:"lastCall,omitzero"`
	Since     time.Time          `json:"since,omitzero"`
	// Requeues is how often Outboard has requeued the pod, and LastRequeued when it last did.
	Requeues     int       `json:"requeues,omitempty"`
	LastRequeued time.Time `json:"lastRequeued,omitzero"`
}

// Merge adds what another replica knows of the same pod.
func (r *Reason) Merge(other Reason) {
	if r.Profile == "" && other.Profile != "" || other.LastCall.After(r.LastCall) {
		*r, other = other, *r
	}
	if !other.LastCall.IsZero() {
		r.Requeues += other.Requeues
		r.Since = slices.MinFunc([]time.Time{r.Since, other.Since}, time.Time.Compare)
		r.LastRequeued = slices.MaxFunc([]time.Time{r.LastRequeued, other.LastRequeued}, time.Time.Compare)
	}
}

// Profiles returns the profiles that place the pod, and those that manage what it requests and
// serve other schedulers only.
func (s *Source) Profiles(c *config.Config, pod *corev1.Pod) (profiles []*config.Profile) {
	for i := range c.Profiles {
		if p := &c.Profiles[i]; s.Places(p, pod) || s.stranger(p, pod) {
			profiles = append(profiles, p)
		}
	}
	return profiles
}

// stranger reports whether the profile manages what the pod requests, and serves other schedulers
// than the pod's.
func (s *Source) stranger(p *config.Profile, pod *corev1.Pod) bool {
	return len(p.ManagedResources) > 0 && p.Manages(pod) && !s.Places(p, pod)
}

// running is the end of a sentence about a scheduler that has not tried a pod.
const running = "; is it running (docs/troubleshooting.md, The second kube-scheduler)?"

// Waits returns why the pod waits, which is not bound. profiles are those of Profiles.
func (s *Source) Waits(pod *corev1.Pod, profiles []*config.Profile) (r Reason) {
	for _, p := range profiles {
		status, ok := s.Rejected(p.Path, pod.UID)
		if !ok || status.Rejection.Code == "" {
			continue
		}
		r.Merge(Reason{
			Profile: p.Path, Rejection: status.Rejection, Nodes: status.Nodes, LastCall: status.LastCall,
			Since: status.Since, Requeues: status.Requeues, LastRequeued: status.LastRequeued,
		})
	}
	var condition corev1.PodCondition // zero: no scheduler has tried the pod
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason != corev1.PodReasonSchedulingGated {
			condition = c
		}
	}
	if since := condition.LastTransitionTime; condition.Status == corev1.ConditionFalse && !since.IsZero() && since.Time.Before(r.Since) {
		r.Since = since.Time
	}
	stranger := slices.IndexFunc(profiles, func(p *config.Profile) bool { return s.stranger(p, pod) })
	if stranger >= 0 {
		r.Unserved = profiles[stranger].Path
	}
	switch {
	case snapshot.Gated(pod):
		var gates []string
		for _, g := range pod.Spec.SchedulingGates {
			gates = append(gates, g.Name)
		}
		r.Code = Gated
		r.Text = "kube-scheduler tries it only after its scheduling gates are removed (" + strings.Join(gates, ", ") + ")"
	case condition.Reason == corev1.PodReasonSchedulerError:
		r.Code, r.Text = Failed, failure(condition.Message)
	case r.Rejection.Code != "":
		r.Code, r.Text = codeOf(&r.Rejection), r.Rejection.Text
	case condition.Type == "":
		hint := running
		if stranger >= 0 {
			hint = meant(pod, profiles[stranger].SchedulerNames)
		}
		r.Code, r.Text = NotTried, "no scheduler named "+pod.Spec.SchedulerName+" has tried it"+hint
	case stranger >= 0:
		r.Code = OtherScheduler
		r.Text = "its schedulerName is " + pod.Spec.SchedulerName + meant(pod, profiles[stranger].SchedulerNames)
	default:
		r.Code, r.Text = Other, condition.Message
		if policyFailed(condition.Message, profiles) {
			r.Code = PolicyFailed
		}
	}
	return r
}

// policyFailed reports whether the message of kube-scheduler has the error of a policy, which
// engine.PolicyError begins with its name.
func policyFailed(message string, profiles []*config.Profile) bool {
	for _, p := range profiles {
		if slices.ContainsFunc(p.Policies, func(q config.Policy) bool { return strings.Contains(message, " policy "+q.Name+": ") }) {
			return true
		}
	}
	return false
}

func codeOf(r *decision.Rejection) string {
	if r.Policy == "" {
		return r.Code
	}
	return r.Policy + "." + r.Code
}

// meant is the end of a sentence about the schedulerName of a pod, which is none of the names.
func meant(pod *corev1.Pod, names []string) string {
	if near := fields.Nearest(pod.Spec.SchedulerName, names); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	if len(names) == 0 {
		return ""
	}
	return "; Outboard serves " + strings.Join(names, ", ")
}

// Of returns why the pod waits, or what is wrong with its binding; ok is false if nothing is.
func (s *Source) Of(view *snapshot.View, pod *corev1.Pod) (r Reason, ok bool) {
	if pod.Spec.NodeName != "" {
		return s.bound(view, pod)
	}
	r = s.Waits(pod, s.Profiles(s.Config(), pod))
	if text, ok := strings.CutSuffix(r.Text, running); ok { // the profiles serve any scheduler
		var used []string
		for n := range view.All() {
			for _, other := range n.Pods {
				if name := other.Spec.SchedulerName; !slices.Contains(used, name) {
					used = append(used, name)
				}
			}
		}
		own := pod.Spec.SchedulerName
		if near := fields.Nearest(own, used); near != "" && near != own {
			r.Text = text + "; did you mean " + near + "?"
		}
	}
	return r, true
}

// bound returns what is wrong with the binding of the pod, which is bound; ok is false if nothing
// is.
func (s *Source) bound(view *snapshot.View, pod *corev1.Pod) (r Reason, ok bool) {
	n, c := view.Node(pod.Spec.NodeName), s.Config()
	if n == nil {
		return r, false
	}
	if text := c.UnreadRequest(pod); text != "" {
		return Reason{Code: Unallocated, Text: fmt.Sprintf("bound by %s without an allocation: it %s", pod.Spec.SchedulerName, text)}, true
	}
	EachLacking(c, view, n, pod, func(resource string) {
		r.Code = Unallocated
		r.Text = fmt.Sprintf("bound by %s without an allocation of %s", pod.Spec.SchedulerName, resource)
	})
	for _, p := range s.Profiles(c, pod) {
		if r.Code != "" && s.stranger(p, pod) {
			r.Text += meant(pod, p.SchedulerNames)
			return r, true
		}
	}
	if r.Code != "" {
		r.Text += "; outboard check --cluster finds why Outboard was not called"
	}
	return r, r.Code != ""
}

// Uncalled returns the end of a verdict about a bound pod of which no call is recorded; "" if
// kube-scheduler need not call for it. It calls prioritize only if it has several nodes left.
func (s *Source) Uncalled(pod *corev1.Pod) (end string) {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.Kind == "Node" {
		return "" // a static pod
	}
	c := s.Config()
	for i := range c.Profiles {
		if p := &c.Profiles[i]; s.Places(p, pod) && (end == "" || p.NeedsFilter()) {
			end = "bound by " + pod.Spec.SchedulerName + " without a call to Outboard that is recorded; outboard check --cluster finds why"
			if !p.NeedsFilter() {
				end += ", unless only one node was left"
			}
		}
	}
	return end
}

// EachLacking calls visit for each allocation that the pod on the node must have and lacks, with
// its resource.
func EachLacking(
	c *config.Config, view *snapshot.View, n *snapshot.Node, pod *corev1.Pod, visit func(resource string),
) {
	if pod.Spec.NodeName == "" {
		return // it is being bound
	}
	c.EachAllocation(n, pod, func(key snapshot.LedgerKey) {
		if view.Ledger(key).Pod(pod.UID) == nil {
			visit(key.Resource)
		}
	})
}
