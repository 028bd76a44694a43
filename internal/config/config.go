package config

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/snapshot"
)

// The header of a file.
const (
	APIVersion = "outboard.dev/v1alpha1"
	Kind       = "OutboardConfiguration"
)

// Config is a configuration file with its defaults filled in. It is read-only
// once loaded.
type Config struct {
	Process
	// Bypass says that no policy is asked, except for allocations.
	Bypass bool
	// Signals are the signals that policies read.
	Signals []Signal
	// Profiles are the sets of policies, each at its own URLs. At least one.
	Profiles []Profile
	// Warnings are about valid fields that are probably mistakes.
	Warnings Errors
}

// Types are the types that a configuration file can name.
type Types struct {
	Policies []policy.Type
	// Signals are the types of the sources of signals.
	Signals []signal.Type
	// Unserved is true for a program that evaluates the policies and serves no calls, such as the
	// plugin and a simulation: the file need not say how callers are authenticated.
	Unserved bool
}

// Process is the part of a file that is read only when the process starts.
type Process struct {
	// APIVersion is "outboard.dev/v1alpha1". Required.
	APIVersion string `json:"apiVersion" required:"-"`
	// Kind is "OutboardConfiguration". Required.
	Kind string `json:"kind" required:"-"`
	// Serving is how kube-scheduler reaches Outboard.
	Serving Serving `json:"serving"`
	// Admin is the address of metrics, health and explanations.
	Admin Admin `json:"admin"`
	// ClientConnection is how Outboard reaches the API server.
	ClientConnection ClientConnection `json:"clientConnection"`
	// Ledgers is how allocations are kept and released.
	Ledgers Ledgers `json:"ledgers"`
	// Requeue is how fast Outboard makes kube-scheduler retry pending pods that fit again.
	Requeue Requeue `json:"requeue"`
	// Log is the level and the format of the log on standard error.
	Log Log `json:"log"`
}

// document is a Config in the form of a file.
type document struct {
	*Process
	// Bypass takes the policies out at once, in an emergency: filter passes all nodes, prioritize
	// has no scores, and preempt changes nothing. Bind still allocates, and binds no pod whose
	// allocation is not free on the node. Default false.
	Bypass bool `json:"bypass"`
	// Signals are numbers from external sources that policies read.
	Signals []strictyaml.Value `json:"signals"`
	// Profiles are the sets of policies, each at its own URLs. At least one.
	Profiles []Profile `json:"profiles" required:"-"`
}

// Serving configures the listener that kube-scheduler calls.
type Serving struct {
	// Address is IP:port, localhost:port, or :port for all addresses. Default 127.0.0.1:8443 with
	// tls, 127.0.0.1:8888 without.
	Address string `json:"address"`
	// Insecure accepts callers without authentication, who can then bind pods: plain HTTP on a
	// loopback address, or TLS without clientCAFile. Required without tls. Default false.
	Insecure bool `json:"insecure"`
	// TLS enables TLS; without it (the default), plain HTTP needs insecure and a loopback address.
	TLS *TLS `json:"tls"`
	// ShutdownDelay is how long Outboard still serves after it is stopped and is not ready. Calls
	// then have 20s to end. Default 10s, and 0s on a loopback address.
	ShutdownDelay time.Duration `json:"shutdownDelay" limits:"0s..10m"`
}

// SchedulerClient is the name of kube-scheduler in its client certificate, unless allowedClients
// lists others.
const SchedulerClient = "system:kube-scheduler"

// TLS configures TLS on the serving address. The files are PEM.
type TLS struct {
	// CertFile is the path of the certificate with its chain. Required.
	CertFile string `json:"certFile" required:"TLS needs a certificate"`
	// KeyFile is the path of its key. Required.
	KeyFile string `json:"keyFile" required:"TLS needs a key"`
	// ClientCAFile is the file with the CAs of callers' certificates; "" (the default): none.
	ClientCAFile string `json:"clientCAFile"`
	// AllowedClients are the names (common name, DNS or URI name) of allowed callers; none allows
	// every caller with a certificate. Default [system:kube-scheduler] with clientCAFile.
	AllowedClients []string `json:"allowedClients" items:"must not be empty"`
}

// Admin configures the listener for metrics, health, explanations and the dashboard. It is plain
// HTTP without authentication.
type Admin struct {
	// Address is IP:port, localhost:port, or :port for all addresses. Default "127.0.0.1:8081".
	Address string `json:"address" required:"-"`
	// Expose is what other hosts can read: Metrics is /metrics, /healthz and /readyz, and None
	// requires a loopback address. Default None.
	Expose Expose `json:"expose" values:"None,Metrics,All"`
	// Pprof adds /debug/pprof/, only on a loopback address. Default false.
	Pprof bool `json:"pprof"`
}

// Expose is what other hosts can read at the admin address.
type Expose string

// What other hosts can read.
const (
	ExposeNone    Expose = "None"
	ExposeMetrics Expose = "Metrics"
	ExposeAll     Expose = "All"
)

// ClientConnection configures the connection to the API server.
type ClientConnection struct {
	// Enabled connects to the API server; if false, Outboard knows only what requests have. Default
	// true.
	Enabled bool `json:"enabled"`
	// Kubeconfig is the path of a kubeconfig file; "" (the default) is the in-cluster
	// configuration, or that of KUBECONFIG, or ~/.kube/config.
	Kubeconfig string `json:"kubeconfig"`
	// Context is a context of the kubeconfig; "" (the default) is its current one.
	Context string `json:"context"`
	// QPS is the average rate of Bindings, and of requests about ledgers, per second; twice as many
	// in a burst. Default 100.
	QPS int `json:"qps" limits:"1..10000"`
}

// Ledgers configures allocations, for policies that allocate resources.
type Ledgers struct {
	// ReclaimAfter is how long a pod that is not bound keeps its allocation. If it is shorter than
	// a response of the API server, the Binding can fail and is retried. Default 5m.
	ReclaimAfter time.Duration `json:"reclaimAfter" limits:"1s..24h"`
}

// Requeue configures the requeuing of pending pods: kube-scheduler retries pods that Outboard
// rejected, when they fit.
type Requeue struct {
	// PerSecond is the number of pods requeued per second, each by a patch of pods/status, 0..1000.
	// 0 disables requeuing. Default 20.
	PerSecond int `json:"perSecond" limits:"0..1000"`
}

// Log configures the log on standard error.
type Log struct {
	// Level is the lowest level that is logged. Default Info.
	Level string `json:"level" values:"Debug,Info,Warn,Error"`
	// Format is Text (key=value) or JSON. Default Text.
	Format string `json:"format" values:"Text,JSON"`
	// Decisions is a file to which decisions are appended as lines of JSON, or /dev/stdout: all
	// except filter calls that some node passes. Outboard does not rotate it. Default: none.
	Decisions string `json:"decisions"`
}

// Profile is a set of policies that one call evaluates.
type Profile struct {
	// Path is the path of the URLs, and the name of the profile in metrics and explanations.
	// Unique. Default "/".
	Path string `json:"path" required:"-"`
	// Verb is the only verb to serve, at path itself. Without it (the default), all four are
	// served, at path/filter, path/prioritize, path/preempt and path/bind.
	Verb *Verb `json:"verb" values:"Filter,Prioritize,Preempt,Bind"`
	// ManagedResources are the extended resources of which a pod must request one for the profile
	// to apply, with all that its policies allocate; [] is every pod. Default: what the policies
	// allocate; every pod if that is nothing, or if a pod may request it in an annotation, as with
	// Licenses. No resource may be in two profiles.
	ManagedResources []ManagedResource `json:"managedResources"`
	// SchedulerNames are the schedulers whose pods bind accepts. Default: any.
	SchedulerNames []string `json:"schedulerNames" items:"must not be empty"`
	// Shortlist makes filter return only this many nodes, those with the best scores; 0 returns all
	// that fit. Default 8 if a policy of the profile allocates and scores, and no other profile can
	// reject nodes; otherwise 0.
	Shortlist *int `json:"shortlist" limits:"0..1000"`
	// Policies are evaluated in this order. 1..100.
	Policies []Policy `json:"policies" required:"must have at least one policy"`
}

// DefaultShortlist is the shortlist of a profile that allocates: its scores matter more than those
// of kube-scheduler's plugins. For other profiles, a shortlist would make a filter of a preference.
const DefaultShortlist = 8

// Listed returns how many nodes filter returns at most; 0: all that fit.
func (p *Profile) Listed() int {
	if p.Shortlist == nil {
		return 0
	}
	return *p.Shortlist
}

// SetDefaults fills in the defaults.
func (p *Profile) SetDefaults() { *p = Profile{Path: "/"} }

// Verb is the name of a verb in a file.
type Verb string

// OnlyVerb returns the verb of a profile that serves one; "" if it serves all.
func (p *Profile) OnlyVerb() decision.Verb {
	if p.Verb == nil {
		return ""
	}
	return decision.Verb(strings.ToLower(string(*p.Verb)))
}

// Route is one URL of a profile.
type Route struct {
	Verb decision.Verb
	// Path is the path of the URL; calls to it are POST.
	Path string
}

// Routes returns the URLs at which the profile is served.
func (p *Profile) Routes() []Route {
	if v := p.OnlyVerb(); v != "" {
		return []Route{{v, p.Path}}
	}
	prefix := p.Path
	if prefix == "/" {
		prefix = ""
	}
	var routes []Route
	for _, v := range decision.Verbs() {
		routes = append(routes, Route{v, prefix + "/" + string(v)})
	}
	return routes
}

// ManagedResource is an extended resource that a profile manages.
type ManagedResource struct {
	// Name is an extended resource such as example.com/gpu-memory.
	Name string `json:"name" required:"-"`
	// IgnoredByScheduler says that only policies count the resource, and kube-scheduler does not.
	// Default false.
	IgnoredByScheduler bool `json:"ignoredByScheduler"`
}

// Policy is one policy of a profile.
type Policy struct {
	// Type is the type of policy. Required.
	Type string `json:"type" required:"-"`
	// Name is the policy's name in metrics and explanations, unique in its profile: letters, digits
	// and ._-, at most 63. Default: Type.
	Name string `json:"name"`
	// Weight multiplies the policy's scores, 0..100. With 0 the policy only filters. Default 1.
	Weight int64 `json:"weight" limits:"0..100"`
	// FailurePolicy is what happens when the policy fails to evaluate a pod. Default Fail. A policy
	// that allocates resources cannot be ignored.
	FailurePolicy policy.FailurePolicy `json:"failurePolicy" values:"Fail,Ignore"`
	// Config is the policy's own configuration.
	Config strictyaml.Value `json:"config"`

	// Policy is the policy, built from Config.
	Policy policy.Policy `json:"-"`

	declared policy.InputReader // the decoded configuration, if Policy could not be built
}

// Inputs returns what the policy reads and allocates. If the policy could not be built, the result
// is what its configuration declares.
func (p *Policy) Inputs() policy.Inputs {
	if reader, ok := p.Policy.(policy.InputReader); ok {
		return reader.Inputs()
	}
	if p.declared != nil {
		return p.declared.Inputs()
	}
	return policy.Inputs{}
}

// Manages reports whether the profile is for the pod.
func (p *Profile) Manages(pod *corev1.Pod) bool {
	return len(p.ManagedResources) == 0 || slices.ContainsFunc(p.ManagedResources, func(r ManagedResource) bool {
		return snapshot.NamesResource(pod, corev1.ResourceName(r.Name))
	})
}

// Places reports whether pods like this one are placed with the profile: those that it is for, of
// its SchedulerNames. The plugin places those of kube-scheduler's profiles instead.
func (p *Profile) Places(pod *corev1.Pod) bool {
	return (len(p.SchedulerNames) == 0 || slices.Contains(p.SchedulerNames, pod.Spec.SchedulerName)) && p.Manages(pod)
}

// Pods says for which pods the profile is.
func (p *Profile) Pods() string {
	if len(p.ManagedResources) == 0 {
		return "every pod"
	}
	var names []string
	for _, r := range p.ManagedResources {
		names = append(names, r.Name)
	}
	return "pods that request " + strings.Join(names, " or ")
}

// Allocator returns the name of a policy of the profile that allocates resources; "" if none does.
func (p *Profile) Allocator() string {
	for _, q := range p.Policies {
		if _, ok := q.Policy.(policy.Reserver); ok {
			return q.Name
		}
	}
	return ""
}

// Filters returns the names of the policies of the profile that can reject nodes.
func (p *Profile) Filters() (names []string) {
	for i := range p.Policies {
		if q := &p.Policies[i]; !q.Inputs().ScoreOnly {
			names = append(names, q.Name)
		}
	}
	return names
}

// ExtenderWeight returns the weight of kube-scheduler's extender for the profile: the sum of the
// weights of the policies that can score.
func (p *Profile) ExtenderWeight() (sum int64) {
	for i := range p.Policies {
		if q := &p.Policies[i]; !q.Inputs().FilterOnly {
			sum += q.Weight
		}
	}
	return sum
}

// NeedsFilter reports whether kube-scheduler's extender for the profile needs filterVerb: if filter
// rejects nodes, if pods are to stay pending while Outboard does not respond, or if there is
// nothing else to call.
func (p *Profile) NeedsFilter() bool {
	return len(p.ManagedResources) > 0 || p.Allocator() != "" || p.Listed() > 0 || p.ExtenderWeight() == 0 || len(p.Filters()) > 0
}

// SetDefaults fills in the defaults that do not depend on other fields.
func (p *Policy) SetDefaults() { *p = Policy{Weight: 1, FailurePolicy: policy.Fail} }

// Default returns a configuration with all defaults and no profile.
func Default() *Config {
	return &Config{Process: Process{
		Serving: Serving{
			ShutdownDelay: 10 * time.Second,
		},
		Admin:            Admin{Address: "127.0.0.1:8081", Expose: ExposeNone},
		ClientConnection: ClientConnection{Enabled: true, QPS: 100},
		Ledgers:          Ledgers{ReclaimAfter: 5 * time.Minute},
		Requeue:          Requeue{PerSecond: 20},
		Log:              Log{Level: "Info", Format: "Text"},
	}}
}

// YAML returns the configuration as a file, with defaults filled in and paths of files made
// absolute. Loading it gives the same configuration. It contains no secrets.
func (c *Config) YAML() ([]byte, error) { return strictyaml.Marshal(c.document()) }

func (c *Config) document() document {
	d := document{Process: &c.Process, Bypass: c.Bypass, Profiles: c.Profiles}
	for i := range c.Signals {
		d.Signals = append(d.Signals, c.Signals[i].written)
	}
	return d
}

// Digest returns a short text that is the same for configurations with the same signals and
// profiles, however they are written: two replicas with different digests decide differently.
// Process is no part of it, as two replicas may have other addresses and files.
func (c *Config) Digest() (string, error) {
	d := c.document()
	text, err := strictyaml.Marshal(struct {
		Bypass   bool               `json:"bypass"`
		Signals  []strictyaml.Value `json:"signals"`
		Profiles []Profile          `json:"profiles"`
	}{d.Bypass, d.Signals, d.Profiles})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6]), nil
}

// IgnoredByScheduler returns the resources that kube-scheduler does not count itself: it ignores
// those of all its extenders, for every pod.
func (c *Config) IgnoredByScheduler() []corev1.ResourceName {
	var ignored []corev1.ResourceName
	for _, p := range c.Profiles {
		for _, r := range p.ManagedResources {
			if r.IgnoredByScheduler {
				ignored = append(ignored, corev1.ResourceName(r.Name))
			}
		}
	}
	return ignored
}
