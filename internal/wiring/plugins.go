package wiring

// predicatePlugins are the plugins that replace the predicates of a Policy. All of them are on by
// default.
var predicatePlugins = map[string][]string{
	"CheckNodeUnschedulable":  {"NodeUnschedulable"},
	"CheckVolumeBinding":      {"VolumeBinding"},
	"EvenPodsSpread":          {"PodTopologySpread"},
	"GeneralPredicates":       {"NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity"},
	"HostName":                {"NodeName"},
	"MatchInterPodAffinity":   {"InterPodAffinity"},
	"MatchNodeSelector":       {"NodeAffinity"},
	"MaxAzureDiskVolumeCount": {"NodeVolumeLimits"},
	"MaxCSIVolumeCountPred":   {"NodeVolumeLimits"},
	"MaxCinderVolumeCount":    {"NodeVolumeLimits"},
	"MaxEBSVolumeCount":       {"NodeVolumeLimits"},
	"MaxGCEPDVolumeCount":     {"NodeVolumeLimits"},
	"NoDiskConflict":          {"VolumeRestrictions"},
	"NoVolumeZoneConflict":    {"VolumeZone"},
	"PodFitsHost":             {"NodeName"},
	"PodFitsHostPorts":        {"NodePorts"},
	"PodFitsPorts":            {"NodePorts"},
	"PodFitsResources":        {"NodeResourcesFit"},
	"PodToleratesNodeTaints":  {"TaintToleration"},
	"CheckNodeCondition":      {"TaintToleration"},
	"CheckNodeDiskPressure":   {"TaintToleration"},
	"CheckNodeMemoryPressure": {"TaintToleration"},
	"CheckNodePIDPressure":    {"TaintToleration"},
}

// mandatoryPlugins filter nodes even if the Policy does not list their predicates.
var mandatoryPlugins = []string{"NodeUnschedulable", "TaintToleration"}

// defaultFilters are the plugins that filter by default and have a predicate. A Policy that lists
// predicates turns off those that it does not list.
var defaultFilters = []string{
	"InterPodAffinity", "NodeAffinity", "NodeName", "NodePorts", "NodeResourcesFit", "NodeVolumeLimits",
	"PodTopologySpread", "VolumeBinding", "VolumeRestrictions", "VolumeZone",
}

// Strategies of NodeResourcesFit.
const (
	leastAllocated           = "LeastAllocated"
	mostAllocated            = "MostAllocated"
	requestedToCapacityRatio = "RequestedToCapacityRatio"
)

// priorityPlugin is the plugin that replaces a priority of a Policy.
type priorityPlugin struct {
	plugin   string
	strategy string // of NodeResourcesFit
	note     string // the difference, if any
}

var priorityPlugins = map[string]priorityPlugin{
	"BalancedResourceAllocation":       {plugin: "NodeResourcesBalancedAllocation"},
	"EvenPodsSpreadPriority":           {plugin: "PodTopologySpread"},
	"ImageLocalityPriority":            {plugin: "ImageLocality"},
	"InterPodAffinityPriority":         {plugin: "InterPodAffinity"},
	"LeastRequestedPriority":           {plugin: "NodeResourcesFit", strategy: leastAllocated},
	"MostRequestedPriority":            {plugin: "NodeResourcesFit", strategy: mostAllocated},
	"NodeAffinityPriority":             {plugin: "NodeAffinity"},
	"RequestedToCapacityRatioPriority": {plugin: "NodeResourcesFit", strategy: requestedToCapacityRatio},
	"SelectorSpreadPriority":           {plugin: "PodTopologySpread", note: "PodTopologySpread spreads pods of the same Service or ReplicaSet by its default constraints"},
	"ServiceSpreadingPriority":         {plugin: "PodTopologySpread", note: "PodTopologySpread spreads pods of the same Service or ReplicaSet by its default constraints"},
	"TaintTolerationPriority":          {plugin: "TaintToleration"},
}

// priorityNotes are the priorities without a plugin, with a replacement.
var priorityNotes = map[string]string{
	"EqualPriority":               "it gives all nodes the same score and changes nothing",
	"NodePreferAvoidPodsPriority": "no equivalent: taint the nodes with the effect PreferNoSchedule instead of annotating them with preferAvoidPods",
	"ResourceLimitsPriority":      "no equivalent: it preferred nodes that satisfy the limits of a pod",
}
