package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"outboard.dev/outboard/config/strictyaml"
)

const (
	apiVersion    = "kubescheduler.config.k8s.io/v1"
	rejected      = "kube-scheduler does not start"
	defaultNodes  = 100 // kube-scheduler evaluates all nodes, if they are not more
	ownScheduler  = "default-scheduler"
	extendersPath = "extenders"
)

// renamed are fields with other spellings, often those of other versions.
var renamed = map[string]string{"enableHttps": "enableHTTPS", "enableHTTPs": "enableHTTPS", "enableTLS": "enableHTTPS", "ignoreable": "ignorable", "url": "urlPrefix"}

// fields reports fields that kube-scheduler does not know or cannot decode.
func (c *checker) fields(errs strictyaml.Errors) {
	if v := c.doc.config.APIVersion; v != apiVersion {
		c.at(Error, "APIVersion", "apiVersion", fmt.Sprintf("apiVersion is %q", v),
			"kube-scheduler 1.29 and later reads "+apiVersion+" only, and does not start", "set "+apiVersion, set("apiVersion", apiVersion))
	} else if !c.since(25) {
		c.at(Error, "APIVersion", "apiVersion", fmt.Sprintf("kube-scheduler 1.%d does not read %s", c.minor, v), "only 1.25 and later reads it: "+rejected,
			"use kube-scheduler 1.25 or later, or outboard scheduler-config --legacy-policy with 1.22 and earlier")
	}
	for _, e := range errs {
		last := e.Path[strings.LastIndexByte(e.Path, '.')+1:]
		switch {
		case e.Kind == "Unknown field":
			c.unknown(e, last)
		case last == "httpTimeout":
			c.timeoutValue(e)
		case notRead(e):
			c.at(Error, "Syntax", e.Path, e.Rule, "outboard doctor cannot check the file with it; kube-scheduler may read it", "")
			c.findings[len(c.findings)-1].Line = e.Line + c.doc.above
		default:
			c.at(Error, "InvalidValue", e.Path, strings.Join(strings.Fields(e.Kind+" "+e.Value+": "+e.Rule), " "), rejected, "")
			c.findings[len(c.findings)-1].Line = e.Line + c.doc.above
		}
	}
}

func (c *checker) unknown(e *strictyaml.Error, name string) {
	lower := strings.ToLower(name)
	switch {
	case e.Path == "metadata" || e.Path == "spec" || e.Path == "status" || e.Path == "data":
		c.at(Error, "APIObject", e.Path, "a KubeSchedulerConfiguration has no "+name,
			"it is a file and not an API object: "+rejected+" with it, and kubectl apply fails with \"no matches for kind\"",
			"remove it, and give the file to kube-scheduler with --config", remove(e.Path))
	case e.Path != extendersPath && (lower == "extenderconfig" || lower == "extenderconfigs" || lower == "extender" || lower == "extenders"):
		c.at(Error, "MisplacedExtenders", e.Path, name+" is not a field here",
			"extenders are for all profiles, and kube-scheduler reads them in the list \"extenders\" at the top only; with this field it does not start",
			"move it there", move(e.Path, extendersPath))
	default:
		near := renamed[name]
		if near == "" {
			_, _ = fmt.Sscanf(e.Rule, "did you mean %q?", &near) // without it there is none
		}
		if near == "" || strings.Contains(near, ".") {
			c.at(Error, "UnknownField", e.Path, "kube-scheduler does not know this field", rejected, e.Rule)
			return
		}
		edits := []edit{rename(e.Path, near)}
		if !c.doc.root.At(strings.TrimSuffix(e.Path, name) + near).IsZero() {
			edits = nil // both are there
		}
		if strings.HasSuffix(e.Path, "]") {
			edits = nil // an edit cannot have the path of a name with . or [
		}
		c.at(Error, "UnknownField", e.Path, "kube-scheduler does not know this field", rejected, "write "+near, edits...)
	}
}

// timeoutValue reports a timeout that is a number, as a Policy had it.
func (c *checker) timeoutValue(e *strictyaml.Error) {
	var edits []edit
	fix := "write a duration, such as 3s"
	if n, err := strconv.ParseInt(e.Value, 10, 64); err == nil && n >= int64(time.Millisecond) {
		edits = []edit{set(e.Path, time.Duration(n).String())}
		fix = "write " + time.Duration(n).String()
	}
	c.at(Error, "TimeoutFormat", e.Path, "httpTimeout is "+e.Value, "it is a duration with a unit, and a number of nanoseconds only in the Policy of 1.22 and earlier: "+rejected, fix, edits...)
}

// configuration checks the settings of kube-scheduler as a whole.
func (c *checker) configuration() {
	conf := &c.doc.config
	if len(conf.Extenders) == 0 {
		if c.doc.root.At(extendersPath).IsZero() && len(c.findings) == 0 {
			c.at(Error, "NoExtenders", "", "there are no extenders", "kube-scheduler calls no extender", "outboard scheduler-config prints them")
		}
		return
	}
	if len(conf.Profiles) > 1 {
		c.at(Info, "SharedExtenders", extendersPath, fmt.Sprintf("the extenders are for all %d profiles", len(conf.Profiles)),
			"kube-scheduler calls them for the pods of all these profiles", "limit an extender to pods that request certain resources with managedResources, or run a second kube-scheduler")
	}
	if c.since(35) {
		c.at(Info, "BatchingDisabled", extendersPath, "with an extender, kube-scheduler 1.35 and later does not use OpportunisticBatching",
			"equal pods are no longer placed with the results of the first, for every profile", "")
	}
	if c.minor != 0 && c.minor < 28 {
		c.elsewhere(Warning, "OldRequeue", c.doc.name, "", fmt.Sprintf("kube-scheduler 1.%d does not retry every pod that an extender rejected when the cluster changes", c.minor),
			"such a pod may wait for 5 minutes", "use kube-scheduler 1.28 or later")
	}
	c.sampling()
	c.lease()
}

// sampling checks whether kube-scheduler may call for a sample of the nodes, all of which the extender rejects.
func (c *checker) sampling() {
	strict := -1
	for i, e := range c.doc.config.Extenders {
		if e.FilterVerb != "" && !e.Ignorable {
			strict = i
		}
	}
	all := c.doc.config.PercentageOfNodesToScore
	if strict < 0 || all != nil && *all == 100 || c.Cluster != nil && len(c.Cluster.Nodes) <= defaultNodes {
		return
	}
	c.at(Warning, "AdaptiveSampling", "percentageOfNodesToScore", fmt.Sprintf("in clusters of more than %d nodes, kube-scheduler calls extenders[%d] for a sample of the nodes that fit", defaultNodes, strict),
		"if the extender rejects the whole sample, the pod stays pending until its next attempt although other nodes fit",
		"set percentageOfNodesToScore: 100, or rely on the next attempt, which evaluates other nodes", set("percentageOfNodesToScore", "100"))
}

// lease checks whether a second scheduler uses the lease of the cluster's own.
func (c *checker) lease() {
	names := c.schedulerNames()
	if slices.Contains(names, ownScheduler) {
		return
	}
	l := &c.doc.config.LeaderElection
	if l.LeaderElect != nil && !*l.LeaderElect || l.ResourceName != "" && l.ResourceName != "kube-scheduler" || l.ResourceNamespace != "" && l.ResourceNamespace != "kube-system" {
		return
	}
	c.at(Error, "SharedLease", "leaderElection", "this is a second scheduler that uses the lease of the cluster's scheduler, kube-system/kube-scheduler",
		"only one of the two places pods at a time", "give it a lease of its own in leaderElection.resourceName", setText("leaderElection.resourceName", names[0]))
}
