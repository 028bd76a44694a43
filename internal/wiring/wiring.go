package wiring

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/decision"
)

// Timeouts of the extenders that are written. kube-scheduler places one pod at a time and waits for
// every call.
const (
	// StrictTimeout leaves time for preemption, for which Outboard evaluates candidates for up to
	// 1.5 s.
	StrictTimeout = 3 * time.Second
	// SoftTimeout is short: when it ends, the pod is placed without Outboard.
	SoftTimeout = time.Second
)

// Options say how kube-scheduler reaches Outboard. The zero value is a kube-scheduler on the same
// host.
type Options struct {
	// For is where kube-scheduler runs.
	For Topology
	// URL is where kube-scheduler reaches Outboard: scheme, host and perhaps port. Default: by
	// topology and serving.address.
	URL string
	// Namespace is the namespace of Outboard, of its Service, and of a second scheduler's lease.
	// Default [Namespace].
	Namespace string
	// CertificateDir is the directory in which kube-scheduler finds the certificates. Default
	// [Directory].
	CertificateDir string
	// SchedulerKubeconfig is the kubeconfig of kube-scheduler, an absolute path. Default for
	// [Kubeadm]: that of kubeadm; otherwise none: the configuration of the pod in which
	// kube-scheduler runs.
	SchedulerKubeconfig string
	// SchedulerName is the name of a second scheduler, not for [Kubeadm]. Default for [Sidecar] and
	// [Service]: what a profile names first in schedulerNames, or else outboard-scheduler. Without
	// a name, [SameHost] and [NodePort] are the cluster's own scheduler.
	SchedulerName string
	// Profiles are the paths of the profiles to call. Default: all.
	Profiles []string
	// Strict makes the extender of every profile strict, with bind.
	Strict bool
}

// Wiring is the part of kube-scheduler's configuration that makes it call the profiles of a
// configuration.
type Wiring struct {
	entries    []entry
	schedulers []string // names of kube-scheduler's profiles; none is the default one
	options    Options
	note       string
}

// entry is an extender with the texts of its comments.
type entry struct {
	schedulerv1.Extender
	profile *config.Profile
	strict  bool
	why     string // the reason why it is strict or soft
}

// New decides on the extenders for the configuration.
func New(c *config.Config, o Options) (*Wiring, error) {
	if err := o.completeNamespace(); err != nil {
		return nil, err
	}
	note, err := o.ownHostOnly(&c.Serving)
	if err != nil {
		return nil, err
	}
	if o.remote() && c.Serving.TLS == nil {
		// A file that serves its own host only is not yet what this kube-scheduler calls. The chart
		// serves it with TLS.
		served := *c
		served.Serving.TLS = &config.TLS{ClientCAFile: "ca.crt"}
		c = &served
	}
	if o.URL == "" {
		if o.URL, err = o.For.url(&c.Serving, o.Namespace); err != nil {
			return nil, err
		}
	}
	if err := checkURL(o.URL, &c.Serving); err != nil {
		return nil, err
	}
	o.URL = strings.TrimRight(o.URL, "/")
	o.CertificateDir = strings.TrimRight(cmp.Or(o.CertificateDir, Directory), "/")
	if !path.IsAbs(o.CertificateDir) {
		return nil, fmt.Errorf("certificate directory %q: must be an absolute path: kube-scheduler looks for a relative one in its working directory", o.CertificateDir)
	}
	if o.SchedulerKubeconfig != "" && !path.IsAbs(o.SchedulerKubeconfig) {
		return nil, fmt.Errorf("--scheduler-kubeconfig=%q: must be an absolute path: kube-scheduler looks for a relative one in its working directory", o.SchedulerKubeconfig)
	}
	profiles, err := selected(c, o.Profiles)
	if err != nil {
		return nil, err
	}
	w := &Wiring{options: o, note: note}
	w.add(c, profiles)
	// kube-scheduler calls ignorable extenders last, in whatever order they are written.
	slices.SortStableFunc(w.entries, func(a, b entry) int { return cmp.Compare(rank(a.strict), rank(b.strict)) })
	return w, errors.Join(w.oneBinder(), w.nameSchedulers(profiles))
}

// completeNamespace fills in the default of the namespace, and checks it.
func (o *Options) completeNamespace() error {
	o.Namespace = cmp.Or(o.Namespace, Namespace)
	if wrong := validation.IsDNS1123Label(o.Namespace); len(wrong) > 0 {
		return fmt.Errorf("--outboard-namespace=%q: %s", o.Namespace, wrong[0])
	}
	return nil
}

func rank(strict bool) int {
	if strict {
		return 0
	}
	return 1
}

// selected returns the profiles with these paths, or all.
func selected(c *config.Config, paths []string) ([]*config.Profile, error) {
	var profiles []*config.Profile
	var known []string
	for i := range c.Profiles {
		known = append(known, c.Profiles[i].Path)
		if len(paths) == 0 || slices.Contains(paths, c.Profiles[i].Path) {
			profiles = append(profiles, &c.Profiles[i])
		}
	}
	for _, p := range paths {
		if !slices.Contains(known, p) {
			return nil, fmt.Errorf("no profile has the path %q: there are %s", p, strings.Join(known, ", "))
		}
	}
	return profiles, nil
}

// OneScheduler returns why no kube-scheduler accepts the extenders of all profiles together, so
// that [New] fails without Options.Profiles; nil if one does.
func OneScheduler(c *config.Config) error {
	w := &Wiring{}
	all, _ := selected(c, nil)
	w.add(c, all)
	return w.oneBinder()
}

// Strictness says whether the extender of a profile is strict by default, and why, in sentences.
func Strictness(p *config.Profile) (strict bool, why string) { return (&Wiring{}).strictness(p) }

func (w *Wiring) add(c *config.Config, profiles []*config.Profile) {
	for _, p := range profiles {
		w.entries = append(w.entries, w.entry(c, p))
	}
}

func (w *Wiring) entry(c *config.Config, p *config.Profile) entry {
	e := entry{profile: p}
	e.strict, e.why = w.strictness(p)
	e.HTTPTimeout = metav1.Duration{Duration: SoftTimeout}
	if e.strict {
		e.HTTPTimeout.Duration = StrictTimeout
	}
	e.Ignorable = !e.strict
	e.NodeCacheCapable = c.ClientConnection.Enabled
	for _, r := range p.ManagedResources {
		e.ManagedResources = append(e.ManagedResources, schedulerv1.ExtenderManagedResource(r))
	}
	e.setVerbs(p, p.Allocator() != "" || w.options.Strict, !c.ClientConnection.Enabled)
	if e.PrioritizeVerb != "" {
		e.Weight = p.ExtenderWeight()
	}
	prefix := p.Path
	if p.Verb != nil {
		prefix = path.Dir(p.Path)
	}
	e.URLPrefix = w.options.URL + strings.TrimRight(prefix, "/")
	if t := c.Serving.TLS; t != nil {
		e.EnableHTTPS = true
		files, dir := CertificateNames(w.options.For.second()), w.options.CertificateDir+"/"
		e.TLSConfig = &schedulerv1.ExtenderTLSConfig{CAFile: dir + files.CA, ServerName: w.options.For.serverName(w.options.URL, w.options.Namespace)}
		if t.ClientCAFile != "" {
			e.TLSConfig.CertFile, e.TLSConfig.KeyFile = dir+files.Cert, dir+files.Key
		}
	}
	return e
}

// setVerbs sets the verbs to call. Without a cluster, a profile can neither preempt nor bind.
func (e *entry) setVerbs(p *config.Profile, bind, noCluster bool) {
	if p.Verb != nil {
		*VerbField(&e.Extender, p.OnlyVerb()) = path.Base(p.Path)
		return
	}
	// Without filter, kube-scheduler places pods although the extender does not respond, and there
	// is no shortlist.
	if e.strict || p.NeedsFilter() {
		e.FilterVerb = string(decision.Filter)
	}
	if p.ExtenderWeight() > 0 {
		e.PrioritizeVerb = string(decision.Prioritize)
	}
	if e.strict && !noCluster {
		e.PreemptVerb = string(decision.Preempt)
		if bind {
			e.BindVerb = string(decision.Bind)
		}
	}
}

// VerbField returns the field of an extender that names the path of a verb.
func VerbField(e *schedulerv1.Extender, v decision.Verb) *string {
	switch v {
	case decision.Filter:
		return &e.FilterVerb
	case decision.Prioritize:
		return &e.PrioritizeVerb
	case decision.Preempt:
		return &e.PreemptVerb
	default:
		return &e.BindVerb
	}
}

// strictness says whether the extender of a profile is strict, and why.
func (w *Wiring) strictness(p *config.Profile) (strict bool, why string) {
	every := "Strict, and for every pod: no pod is placed while Outboard does not respond"
	if !w.options.second() {
		every += ", not even Outboard's own if this kube-scheduler is to place them"
	}
	switch {
	case len(p.ManagedResources) > 0:
		return true, "Strict: pods that request a managed resource stay pending while Outboard does not respond."
	case p.Allocator() != "":
		return true, every + "."
	case p.OnlyVerb() == decision.Bind || p.OnlyVerb() == decision.Preempt:
		return true, "Strict: a pod that another binder binds, or victims that another chooses, would be wrong."
	case w.options.Strict:
		return true, every + "."
	}
	return false, "Soft: pods are placed without Outboard while it does not respond."
}

// oneBinder returns an error if kube-scheduler would not accept the extenders.
func (w *Wiring) oneBinder() error {
	var binders []string
	for _, e := range w.entries {
		if e.BindVerb != "" {
			binders = append(binders, e.profile.Path)
		}
	}
	if len(binders) < 2 {
		return nil
	}
	return fmt.Errorf("kube-scheduler accepts one extender with bind, and the profiles %s need it: put their policies in one profile, or write a file for each with outboard setup scheduler --profile, and run a scheduler for each", strings.Join(binders, ", "))
}

// nameSchedulers decides on kube-scheduler's own profiles.
func (w *Wiring) nameSchedulers(profiles []*config.Profile) error {
	var named []string
	for _, p := range profiles {
		for _, name := range p.SchedulerNames {
			if !slices.Contains(named, name) {
				named = append(named, name)
			}
		}
	}
	switch {
	case w.options.For == Kubeadm && w.options.SchedulerName != "":
		return errors.New("--scheduler-name: the scheduler of --for kubeadm is the cluster's own, whose name does not change: leave out --scheduler-name, or run a second scheduler with --for service, sidecar or nodeport")
	case w.options.second():
		name := w.options.SchedulerName
		if name == "" {
			name = secondScheduler
			if others := slices.DeleteFunc(slices.Clone(named), isDefaultScheduler); len(others) > 0 {
				name = others[0]
			}
		}
		if err := checkSchedulerName(name); err != nil {
			return err
		}
		w.schedulers = []string{name}
	case len(named) > 0 && !slices.Equal(named, []string{defaultScheduler}):
		w.schedulers = append([]string{defaultScheduler}, slices.DeleteFunc(named, isDefaultScheduler)...)
	}
	for _, p := range profiles {
		if w.options.second() && len(p.SchedulerNames) > 0 && !slices.Contains(p.SchedulerNames, w.schedulers[0]) {
			return fmt.Errorf("profile %s binds pods of %s only, and the scheduler's name is %s", p.Path, strings.Join(p.SchedulerNames, ", "), w.schedulers[0])
		}
	}
	return w.bindable()
}

// bindable returns an error if all pods of a scheduler would stay pending because no bind call
// accepts them.
func (w *Wiring) bindable() error {
	for i := range w.entries {
		e := &w.entries[i]
		if refused := w.refused(e); len(refused) > 0 && len(e.ManagedResources) == 0 {
			names := strings.Join(refused, ", ")
			return fmt.Errorf("profile %s is for every pod, and binds pods of %s only, so that those of %s would stay pending: list managedResources in the profile, add %[3]s to its schedulerNames, or write the file of a second scheduler with --scheduler-name",
				e.profile.Path, strings.Join(e.profile.SchedulerNames, ", "), names)
		}
	}
	return nil
}

// refused returns the schedulers for whose pods kube-scheduler calls bind of an entry, which
// refuses them.
func (w *Wiring) refused(e *entry) (names []string) {
	if e.BindVerb == "" || len(e.profile.SchedulerNames) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(w.schedulers), func(name string) bool { return slices.Contains(e.profile.SchedulerNames, name) })
}

func isDefaultScheduler(name string) bool { return name == defaultScheduler }

// checkSchedulerName returns an error unless a second scheduler can have the name.
func checkSchedulerName(name string) error {
	if isDefaultScheduler(name) {
		return fmt.Errorf("scheduler name %q: it is that of the cluster's own scheduler, and both would place the same pods: give the second scheduler another name", name)
	}
	if msgs := validation.IsDNS1123Subdomain(name); len(msgs) > 0 {
		return fmt.Errorf("scheduler name %q: it is also the name of a lease, so %s", name, msgs[0])
	}
	return nil
}

// second says whether the scheduler is not the cluster's own.
func (o *Options) second() bool { return o.For.second() || o.SchedulerName != "" }

// Note says what the user still has to do so that the calls arrive; "" if nothing.
func (w *Wiring) Note() string { return w.note }
