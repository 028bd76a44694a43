package strictyaml

import "strings"

// former are the names that fields had in earlier versions, with the path of what replaces each of them. They are unknown fields
// like any other; the list only makes the error name the new field where [Nearest] would not find it. A field counts as replaced
// only where the first part of the new path is a field.
var former = map[string]string{
	"as":                "name",
	"askFor":            "resources",
	"checkoutAfter":     "checkoutDelay",
	"chooseCard":        "gpuSelection",
	"cluster":           "clientConnection",
	"counts":            "usedIncludesPods",
	"homeScore":         "scoringStrategy.localScore",
	"lameDuck":          "shutdownDelay",
	"margin":            "scoringStrategy.margin",
	"maxRisk":           "scoringStrategy.maxRisk",
	"model":             "scoringStrategy.type",
	"multiCard":         "multiGPU",
	"onError":           "failurePolicy",
	"onEvaluationError": "failurePolicy",
	"per":               "scoringStrategy.type",
	"podGets":           "allocationMode",
	"resolution":        "scoreRange",
	"safeUse":           "scoringStrategy.safeUtilization",
	"scoreBy":           "scoringStrategy.type",
	"scoreNodes":        "scoringStrategy.type",
	"sensitivity":       "scoringStrategy.sensitivity",
	"serve":             "verb",
	"settle":            "metricDelay",
	"spare":             "reservedSeats",
	"strategy":          "scoringStrategy.type",
	"sunkCost":          "scoringStrategy.sunkCost",
	"wakeUp":            "requeue",
	"target":            "scoringStrategy.targetUtilization",
}

// replacement returns the path that replaces a former field in a struct with these fields; "" if none does.
func replacement(name string, fields []structField) string {
	path := former[name]
	if first, _, _ := strings.Cut(path, "."); lookUp(fields, first) == nil {
		return ""
	}
	return path
}
