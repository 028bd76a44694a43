package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"outboard.dev/outboard/internal/wiring"
)

const (
	apiVersion    = "kubescheduler.config.k8s.io/v1"
	ofScheduler   = "KubeSchedulerConfiguration"
	rejected      = "kube-scheduler does not start"
	defaultNodes  = 100 // kube-scheduler evaluates all nodes, if they are not more
	ownScheduler  = "default-scheduler"
	extendersPath = "extenders"
	noObject      = "it is a file and not an API object, and kubectl apply fails with \"no matches for kind\""
	configMap     = "ConfigMap"
	startHere     = "name the file that kube-scheduler has as --config; outboard setup scheduler prints one for a configuration of Outboard"
	timeoutFormat = "it is a duration with a unit; only in the Policy of 1.22 and earlier, it is a number of nanoseconds"
)

// configuration checks the settings of kube-scheduler as a whole.
func (c *checker) configuration() {
	conf := &c.doc.config
	c.ranges()
	c.names()
	c.lease()
	c.plugged = c.plugin()
	if len(conf.Extenders) == 0 {
		if c.doc.root.At(extendersPath).IsZero() && !c.plugged && !c.anyRefused() && !c.inPluginConfig() {
			c.at(Error, "NoExtenders", "", "there are no extenders", "kube-scheduler calls no extender", "outboard setup scheduler prints them")
		}
		return
	}
	if len(conf.Profiles) > 1 {
		c.at(Note, "SharedExtenders", extendersPath, fmt.Sprintf("the extenders are for all %d profiles", len(conf.Profiles)),
			"kube-scheduler calls them for the pods of all these profiles, unless managedResources limits the pods", "")
	}
	if c.since(35) {
		c.at(Note, "BatchingDisabled", extendersPath, "with an extender, kube-scheduler 1.35 and later does not use OpportunisticBatching",
			"equal pods are no longer placed with the results of the first, for every profile", "")
	}
	if c.minor != 0 && c.minor < 28 {
		c.elsewhere(Warning, "OldRequeue", c.File, "", fmt.Sprintf("kube-scheduler 1.%d does not retry every pod that an extender rejected when the cluster changes", c.minor),
			"such a pod may wait for 5 minutes", "use kube-scheduler 1.28 or later")
	}
	c.sampling()
}

// inPluginConfig reports extenders in the arguments of a plugin that kube-scheduler does not know,
// which it ignores.
func (c *checker) inPluginConfig() (found bool) {
	for i, p := range c.doc.config.Profiles {
		for j, q := range p.PluginConfig {
			if q.Name != pluginName && q.args == nil && !q.Args.At(extendersPath).IsZero() {
				found = true
				c.at(Error, "MisplacedExtenders", fmt.Sprintf("profiles[%d].pluginConfig[%d].args.extenders", i, j), "extenders is not a field here",
					"kube-scheduler ignores the arguments of "+q.Name+", and calls no extender", "move it to the list \"extenders\" at the top")
			}
		}
	}
	return found
}

// invalid reports a value that kube-scheduler's validation rejects.
func (c *checker) invalid(path string, value any, must string) {
	c.refuse("InvalidValue", path, fmt.Sprintf("%v: must be %s", value, must), "", "write a value that is "+must)
	c.broken = append(c.broken, path)
}

// ranges checks numbers and durations.
func (c *checker) ranges() {
	conf := &c.doc.config
	percentage := func(path string, p *int32) {
		if p != nil && (*p < 0 || *p > 100) {
			c.invalid(path, *p, "between 0 and 100")
		}
	}
	percentage("percentageOfNodesToScore", conf.PercentageOfNodesToScore)
	for i, p := range conf.Profiles {
		percentage(fmt.Sprintf("profiles[%d].percentageOfNodesToScore", i), p.PercentageOfNodesToScore)
	}
	if p := conf.Parallelism; p != nil && *p <= 0 {
		c.invalid("parallelism", *p, "positive")
	}
	first, most := int64(1), int64(10)
	if p := conf.PodInitialBackoffSeconds; p != nil {
		first = *p
	}
	if p := conf.PodMaxBackoffSeconds; p != nil {
		most = *p
	}
	if first <= 0 {
		c.invalid("podInitialBackoffSeconds", first, "positive")
	}
	if most < first {
		c.invalid("podMaxBackoffSeconds", most, fmt.Sprintf("at least podInitialBackoffSeconds, which is %d", first))
	}
	if conf.ClientConnection.Burst < 0 {
		c.invalid("clientConnection.burst", conf.ClientConnection.Burst, "at least 0")
	}
	c.election()
}

// election checks the settings of leader election.
func (c *checker) election() {
	l := &c.doc.config.LeaderElection
	if l.LeaderElect != nil && !*l.LeaderElect {
		return
	}
	lease, renew, retry := cmp.Or(l.LeaseDuration.Duration, 15*time.Second), cmp.Or(l.RenewDeadline.Duration, 10*time.Second), cmp.Or(l.RetryPeriod.Duration, 2*time.Second)
	for _, field := range []struct {
		name  string
		value time.Duration
	}{{"leaseDuration", lease}, {"renewDeadline", renew}, {"retryPeriod", retry}} {
		if field.value <= 0 {
			c.invalid("leaderElection."+field.name, field.value, "positive")
		}
	}
	switch {
	case lease <= renew:
		c.invalid("leaderElection.leaseDuration", lease, fmt.Sprintf("longer than renewDeadline, which is %s", renew))
	case float64(renew) <= 1.2*float64(retry):
		c.at(Error, "InvalidValue", "leaderElection.renewDeadline", fmt.Sprintf("%s: must be longer than 1.2 times retryPeriod, which is %s", renew, retry), "kube-scheduler ends when it joins the election", "")
	}
	if l.ResourceLock != "" && l.ResourceLock != "leases" {
		c.invalid("leaderElection.resourceLock", strconv.Quote(l.ResourceLock), "leases")
	}
}

// names checks the names of kube-scheduler's profiles.
func (c *checker) names() {
	first := map[string]int{}
	for i, p := range c.doc.config.Profiles {
		path := fmt.Sprintf("profiles[%d].schedulerName", i)
		if p.SchedulerName == nil && len(c.doc.config.Profiles) == 1 {
			continue
		}
		name := ""
		if p.SchedulerName != nil {
			name = *p.SchedulerName
		}
		before, twice := first[name]
		switch {
		case name == "":
			c.refuse("InvalidValue", path, "the profile has no name", "each of several profiles has one", "set schedulerName")
		case twice:
			c.refuse("InvalidValue", path, fmt.Sprintf("%s is also the name of profiles[%d]", name, before), "", "give each profile a name of its own")
		default:
			first[name] = i
		}
	}
}

// sampling checks whether kube-scheduler may call for a sample of the nodes, all of which the
// extender rejects.
func (c *checker) sampling() {
	strict := -1
	for i, e := range c.doc.config.Extenders {
		if e.FilterVerb != "" && !e.Ignorable {
			strict = i
		}
	}
	all := c.doc.config.PercentageOfNodesToScore
	if strict < 0 || all != nil && *all == 100 || c.Cluster != nil && c.listed("nodes") && len(c.Cluster.Nodes) <= defaultNodes {
		return
	}
	c.at(Warning, "AdaptiveSampling", "percentageOfNodesToScore", fmt.Sprintf("in clusters of more than %d nodes, kube-scheduler calls extenders[%d], which is not ignorable, for a sample of the nodes that fit", defaultNodes, strict),
		"if the extender rejects the whole sample, the pod stays pending until its next attempt although other nodes fit",
		"set percentageOfNodesToScore: 100; or leave it, if placing many pods per second is worth more, as with a shortlist: the next attempt evaluates other nodes")
}

// lease checks whether a second scheduler uses the lease of the cluster's own, or places the same
// pods under another lease.
func (c *checker) lease() {
	names := c.doc.config.schedulerNames()
	l := &c.doc.config.LeaderElection
	other := cmp.Or(l.ResourceName, "kube-scheduler") != "kube-scheduler" || cmp.Or(l.ResourceNamespace, "kube-system") != "kube-system"
	switch {
	case l.LeaderElect != nil && !*l.LeaderElect, c.unknownValue("profiles[0].schedulerName"):
		return
	case slices.Contains(names, ownScheduler) && other:
		c.at(Warning, "CompetingScheduler", "leaderElection", "a profile is "+ownScheduler+", and the lease is not kube-system/kube-scheduler",
			"beside the cluster's own kube-scheduler, this one places the same pods at the same time", "set profiles[].schedulerName to a name of its own, or use the lease of the kube-scheduler that it replaces")
		return
	case slices.Contains(names, ownScheduler) || other:
		return
	}
	fix := "give it a lease of its own, for which it has a Role: set leaderElection.resourceName: " + wiring.Quoted(names[0])
	if c.namespace != "" {
		fix += " and leaderElection.resourceNamespace: " + c.namespace
	}
	c.at(Error, "SharedLease", "leaderElection", "this is a second scheduler that uses the lease of the cluster's scheduler, kube-system/kube-scheduler",
		"only one of the two places pods at a time", fix)
}
