package doctor

import (
	"cmp"
	"slices"

	"outboard.dev/outboard/internal/wiring"
)

const (
	apiVersion    = "kubescheduler.config.k8s.io/v1"
	ofScheduler   = "KubeSchedulerConfiguration"
	rejected      = "kube-scheduler does not start"
	ownScheduler  = "default-scheduler"
	extendersPath = "extenders"
	configMap     = "ConfigMap"
	startHere     = "name the file that kube-scheduler has as --config; outboard setup scheduler prints one for a configuration of Outboard"
)

// configuration checks the settings of kube-scheduler as a whole.
func (c *checker) configuration() {
	c.lease()
	c.plugged = c.plugin()
	if len(c.doc.config.Extenders) > 0 {
	} else if c.doc.root.At(extendersPath).IsZero() && !c.plugged && !c.anyRefused() {
		c.at(Error, "NoExtenders", "", "there are no extenders", "kube-scheduler calls no extender", "outboard setup scheduler prints them")
	}
}

// lease checks whether a second scheduler uses the lease of the cluster's own, or places the same
// pods under another lease.
func (c *checker) lease() {
	names := c.doc.config.schedulerNames()
	l := &c.doc.config.LeaderElection
	other := cmp.Or(l.ResourceName, "kube-scheduler") != "kube-scheduler" || cmp.Or(l.ResourceNamespace, "kube-system") != "kube-system"
	switch own := slices.Contains(names, ownScheduler); {
	case l.LeaderElect != nil && !*l.LeaderElect, c.unknownValue("profiles[0].schedulerName"), own != other:
	case own:
		c.at(Warning, "WrongLease", "leaderElection", "a profile is "+ownScheduler+", and the lease is not kube-system/kube-scheduler",
			"beside the cluster's own kube-scheduler, this one places the same pods at the same time", "set profiles[].schedulerName to a name of its own, or use the lease of the kube-scheduler that it replaces")
	default:
		fix := "give it a lease of its own, for which it has a Role: set leaderElection.resourceName: " + wiring.Quoted(names[0])
		if c.namespace != "" {
			fix += " and leaderElection.resourceNamespace: " + c.namespace
		}
		c.at(Error, "WrongLease", "leaderElection", "this is a second scheduler that uses the lease of the cluster's scheduler, kube-system/kube-scheduler",
			"only one of the two places pods at a time", fix)
	}
}
