package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/policy/fields"
)

// outboardArgs checks the arguments of Outboard's plugin, which are at path, in a profile of
// kube-scheduler with the sets of plugins.
func (c *checker) outboardArgs(path string, args strictyaml.Value, sets map[string]schedulerv1.PluginSet, profile string, all []pluginConfig) {
	var document map[string]any
	if args.Decode(&document) != nil {
		return // it has been reported
	}
	text, err := json.Marshal(document)
	if err != nil {
		return
	}
	types := c.Types
	types.Unserved = true
	a, conf, err := config.ParseArguments(c.File, text, types)
	c.argumentErrors(path, err, "")
	used := usedProfile{path: path}
	if err == nil && conf == nil {
		conf, used.file = c.argumentFile(path, a.ConfigFile, types)
	}
	if err == nil && conf != nil {
		p, wrong := a.Choose(conf)
		if wrong != nil {
			c.refuse("InvalidValue", path+"."+wrong.Field, wrong.ErrorBody(), "", "")
		}
		used.Profile = p
	}
	if used.Profile == nil {
		why := "its arguments have errors"
		if err == nil && conf == nil {
			why = "its configuration is not known: FILE names it"
		}
		c.omit("what the policies of Outboard's plugin need in "+profile+".plugins", why)
	} else {
		used.index = slices.IndexFunc(conf.Profiles, func(p config.Profile) bool { return p.Path == used.Path })
		c.bindsFirst(profile, sets, used.Allocator())
		c.countedByFit(&used, profile, all, sets)
		c.withoutEffect(&used, &a, args)
		c.otherSchedulers(&used, profile)
		c.otherClient(&used, &conf.ClientConnection)
	}
	if err == nil {
		c.inertPlugins(path, &a, sets)
	}
	if err == nil && a.Candidates > 0 {
		c.candidates(path+".candidates", sets, profile, used.Profile)
	}
}

// usedProfile is the profile of Outboard's configuration that the plugin uses; nil: unknown.
type usedProfile struct {
	*config.Profile
	index int
	file  string // that has the configuration; "": it is in the arguments
	path  string // of the arguments
}

// field returns the path in the configuration of a field of the profile.
func (u *usedProfile) field(name string) string { return fmt.Sprintf("profiles[%d].%s", u.index, name) }

// aboutUsed adds a finding about a field of the configuration with the profile.
func (c *checker) aboutUsed(u *usedProfile, severity Severity, code, field, message, why, fix string) {
	if u.file != "" {
		c.elsewhere(severity, code, u.file, field, message, why, fix)
		return
	}
	c.at(severity, code, u.path+"."+field, message, why, fix)
}

// bindsFirst checks that no other plugin binds pods before Outboard's does, which rejects all pods
// for which the policy allocator allocations resources otherwise. "": none does.
func (c *checker) bindsFirst(profile string, sets map[string]schedulerv1.PluginSet, allocator string) {
	order := inOrder(sets, "bind")
	if allocator == "" || len(order) > 0 && order[0] == pluginName {
		return
	}
	message, why := "plugins.bind does not list Outboard", "Outboard does not bind"
	own, everywhere := namesOf(sets["bind"]), slices.Contains(namesOf(sets["multiPoint"])[0], pluginName)
	if len(order) > 0 {
		why = order[0] + " binds first, and knows no allocations"
	}
	if slices.Contains(own[0], pluginName) {
		message = order[0] + " binds before Outboard"
	}
	fix := "list Outboard first in plugins.bind.enabled"
	switch {
	case !everywhere:
		fix += ", and in plugins.multiPoint.enabled"
	case len(own[0])+len(own[1]) == 0:
		fix = "set plugins.bind: {enabled: [{name: Outboard}]}"
	}
	c.at(Error, "PluginNotEnabled", profile+".plugins.bind", message+", and "+allocator+" allocates resources", why+": Outboard rejects all pods that need an allocation, and they stay pending", fix)
}

// countedByFit reports resources that kube-scheduler is not to count, and that its own plugin
// counts: only for extenders it leaves them out.
func (c *checker) countedByFit(u *usedProfile, profile string, all []pluginConfig, sets map[string]schedulerv1.PluginSet) {
	var uncounted, missing []string
	for _, q := range all {
		if a, ok := q.args.(*schedulerv1.NodeResourcesFitArgs); ok {
			uncounted = append(uncounted, a.IgnoredResources...)
			uncounted = append(uncounted, a.IgnoredResourceGroups...)
		}
	}
	for _, e := range c.doc.config.Extenders {
		for _, r := range slices.DeleteFunc(slices.Clone(e.ManagedResources), counted) {
			uncounted = append(uncounted, r.Name)
		}
	}
	for _, r := range u.ManagedResources {
		group, _, _ := strings.Cut(r.Name, "/")
		reported := c.Cluster != nil && c.Cluster.reports(corev1.ResourceName(r.Name))
		if r.IgnoredByScheduler && !reported && !slices.Contains(uncounted, r.Name) && !slices.Contains(uncounted, group) {
			missing = append(missing, r.Name)
		}
	}
	if len(missing) > 0 && slices.Contains(inOrder(sets, "filter"), "NodeResourcesFit") {
		list := strings.Join(missing, ", ")
		c.at(Error, "CountedByFit", profile+".pluginConfig", "NodeResourcesFit counts "+list+", which the profile "+u.Path+" has with ignoredByScheduler: true",
			"unless nodes report it, kube-scheduler rejects every node with \"Insufficient "+missing[0]+"\"",
			"list it in the arguments of NodeResourcesFit: {name: NodeResourcesFit, args: {ignoredResources: ["+list+"]}}")
	}
}

// withoutEffect reports fields of the configuration that have no effect in the plugin.
func (c *checker) withoutEffect(u *usedProfile, a *config.PluginArguments, args strictyaml.Value) {
	if u.file == "" && !args.At("serving").IsZero() {
		c.at(Note, "NoEffectInPlugin", u.path+".serving", "serving has no effect", "kube-scheduler does not call the plugin over the network; admin.address is what outboard explain reads", "")
	}
	if u.Shortlist == nil {
		return
	}
	fix := fmt.Sprintf("remove shortlist, and set candidates: %d in the arguments of the plugin, with Outboard first in plugins.postFilter.enabled", min(*u.Shortlist, 99))
	if a.Candidates > 0 {
		fix = "remove shortlist: candidates does the same"
	}
	c.aboutUsed(u, Warning, "NoEffectInPlugin", u.field("shortlist"), fmt.Sprintf("shortlist is %d, and has no effect in the plugin", *u.Shortlist),
		"kube-scheduler adds up the scores of all plugins on all nodes that it evaluates, so that another node than the best of the policies may win", fix)
}

// otherSchedulers reports schedulerNames without that of kube-scheduler's profile, which runs the
// plugin for its pods alone.
func (c *checker) otherSchedulers(u *usedProfile, profile string) {
	own := ownScheduler
	_ = c.doc.root.At(profile + ".schedulerName").Decode(&own) // an error has been reported
	if len(u.SchedulerNames) == 0 || slices.Contains(u.SchedulerNames, own) {
		return
	}
	c.aboutUsed(u, Warning, "NoEffectInPlugin", u.field("schedulerNames"), fmt.Sprintf("schedulerNames are %s, without %s, and have no effect in the plugin", strings.Join(u.SchedulerNames, ", "), own),
		"kube-scheduler runs the plugin for the pods of "+own+", and for those of other schedulers only if their profiles have it, too", "remove schedulerNames, or add "+own)
}

// otherClient reports settings of the connection to an API server other than kube-scheduler's own,
// which the plugin uses.
func (c *checker) otherClient(u *usedProfile, conn *config.ClientConnection) {
	for _, field := range []struct{ name, value, same string }{{"kubeconfig", conn.Kubeconfig, c.doc.config.ClientConnection.Kubeconfig}, {"context", conn.Context, ""}} {
		if field.value != field.same && field.value != "" {
			c.aboutUsed(u, Note, "NoEffectInPlugin", "clientConnection."+field.name, field.name+" has no effect", "the plugin connects to the API server as kube-scheduler does, by clientConnection.kubeconfig of kube-scheduler or as its pod", "")
		}
	}
}

// inertPlugins checks the plugins that Outboard is to take for inert when it names candidates.
// Whether they are is in their code.
func (c *checker) inertPlugins(path string, a *config.PluginArguments, sets map[string]schedulerv1.PluginSet) {
	if len(a.InertPlugins) == 0 {
		return
	}
	if a.Candidates == 0 {
		c.at(Note, "NoEffectInPlugin", path+".inertPlugins", "inertPlugins has no effect without candidates", "it only matters when the plugin names candidates", "")
		return
	}
	enabled, multi := []string(nil), namesOf(sets["multiPoint"])
	for _, set := range sets {
		enabled = append(enabled, namesOf(set)[0]...)
	}
	for name, p := range plugins {
		if p.on && !slices.Contains(multi[1], name) && !slices.Contains(multi[1], "*") {
			enabled = append(enabled, name)
		}
	}
	slices.Sort(enabled)
	for i, name := range a.InertPlugins {
		if slices.Contains(enabled, name) {
			c.omit("whether the plugin "+name+" is inert", "outboard check --scheduler does not run plugins: outboard_candidates_rejected_total counts how often one is not")
			continue
		}
		at, fix := fmt.Sprintf("%s.inertPlugins[%d]", path, i), "write the name of a plugin of the profile, or remove it"
		others := slices.DeleteFunc(slices.Clone(enabled), func(other string) bool { return slices.Contains(a.InertPlugins, other) })
		if near := fields.Nearest(name, others); near != "" {
			fix = "write " + near
		}
		c.at(Warning, "NoEffectInPlugin", at, fmt.Sprintf("the profile has no plugin %q", name), "if the name is meant for another plugin with PreFilter, the plugin names no candidates", fix)
	}
}

// unnamed says why the plugin names candidates for no pod that the profile is for; "" if it may.
func (c *checker) unnamed(p *config.Profile) string {
	scoring := slices.DeleteFunc(slices.Clone(p.Policies), func(q config.Policy) bool { return q.Weight == 0 || q.Inputs().FilterOnly })
	if len(scoring) == 0 {
		return "no policy of the profile scores nodes with a weight, and candidates are those with the best scores"
	}
	if !slices.ContainsFunc(scoring, func(q config.Policy) bool { return !q.Inputs().Devices }) {
		return scoring[0].Name + " alone scores nodes, and the plugin names none for pods with ResourceClaims"
	}
	for i, e := range c.doc.config.Extenders {
		if e.FilterVerb != "" && len(e.ManagedResources) == 0 {
			return fmt.Sprintf("extenders[%d] has filterVerb and no managedResources, and the plugin names none for pods for which kube-scheduler calls filter", i)
		}
	}
	return ""
}

// candidates checks whether the profile, if it is known, and the order of the plugins permit
// Outboard to name candidates, which are set at the path.
func (c *checker) candidates(path string, sets map[string]schedulerv1.PluginSet, profile string, p *config.Profile) {
	if c.since(35) {
		c.at(Note, "BatchingDisabled", path, "with candidates, kube-scheduler 1.35 and later does not use OpportunisticBatching",
			"equal pods are no longer placed with the results of the first, for this profile", "")
	}
	if p != nil {
		if reason := c.unnamed(p); reason != "" {
			c.at(Note, "CandidatesUnused", path, "candidates has no effect", reason, "")
			return
		}
	}
	const why = "the plugin names no candidates: kube-scheduler evaluates the nodes as without candidates"
	multiPoint := namesOf(sets["multiPoint"])
	isMulti := func(name string) bool {
		return slices.Contains(multiPoint[0], name) || plugins[name].on && !slices.Contains(multiPoint[1], name) && !slices.Contains(multiPoint[1], "*")
	}
	// kube-scheduler runs those plugins in the list of an extension point first that are also in
	// multiPoint.
	first := slices.DeleteFunc(namesOf(sets["postFilter"])[0], func(name string) bool { return !isMulti(name) })
	switch {
	case !slices.Contains(namesOf(sets["postFilter"])[0], pluginName):
		c.at(Warning, "PluginNotEnabled", profile+".plugins.postFilter", "plugins.postFilter does not list Outboard, and candidates is set",
			why, "list Outboard first in plugins.postFilter.enabled")
	case isMulti(pluginName) && first[0] != pluginName:
		c.at(Warning, "PluginOrder", profile+".plugins.postFilter", first[0]+" is before Outboard, and candidates is set",
			why, "list Outboard first in plugins.postFilter.enabled")
	}
	if isMulti(pluginName) && slices.Contains(namesOf(sets["preFilter"])[0], pluginName) {
		c.at(Warning, "PluginOrder", profile+".plugins.preFilter", "plugins.preFilter lists Outboard, so that it runs before the plugins of multiPoint, and candidates is set",
			why, "remove Outboard from plugins.preFilter, so that it runs last")
	}
}

// argumentFile returns the configuration in the file that arguments of Outboard's plugin name, or
// the one that the user names instead, and its name. It reports errors of the file. nil: it cannot
// be read here, or has errors.
func (c *checker) argumentFile(path, file string, types config.Types) (conf *config.Config, name string) {
	if m := missing(file, c.ReadFile); m != nil {
		c.refuse("FileNotMounted", path+".configFile", file+" does not exist: "+m.Error(), "", "add the key, or name a file that the container has")
		return nil, ""
	}
	if c.Config != nil && !c.configDeployed {
		return c.Config, c.ConfigFile
	}
	data := c.readOrOmit(file, c.ReadFile)
	if data == nil {
		return nil, ""
	}
	conf, err := config.Parse(file, data, types)
	c.argumentErrors(path, err, "configFile")
	return conf, file
}

// argumentErrors reports errors of the configuration in the arguments at path, or in the file that
// the field names.
func (c *checker) argumentErrors(path string, err error, field string) {
	var errs config.Errors
	if !errors.As(err, &errs) {
		return
	}
	for _, e := range errs {
		if len(c.Types.Policies) == 0 && (strings.HasPrefix(e.Path, "profiles") || strings.HasPrefix(e.Path, "signals")) {
			continue // the types are unknown
		}
		code, fix := "InvalidValue", ""
		if strings.HasSuffix(e.Path, ".type") && e.Kind == "Unsupported value" {
			fix = "write the name of a type; or, if this kube-scheduler is a build with this type, ignore this"
		}
		if field != "" {
			c.refuse(code, path+"."+field, e.Error(), "", fix)
			continue
		}
		c.refuse(code, strings.TrimSuffix(path+"."+e.Path, "."), e.Message(), "", fix)
	}
}
