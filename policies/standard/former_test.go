package standard_test

import (
	"strings"
	"testing"

	"outboard.dev/outboard/config"
	"outboard.dev/outboard/policies/standard"
	sources "outboard.dev/outboard/signal/standard"
)

// A configuration with former names of fields gets an error for each, with the new name.
func TestFormerNames(t *testing.T) {
	for former, want := range map[string]string{
		"{type: Cost, config: {per: pod}}":                                              `config.per: Unknown field: did you mean "scoringStrategy.type"?`,
		"{type: Cost, config: {sunkCost: true}}":                                        `config.sunkCost: Unknown field: did you mean "scoringStrategy.sunkCost"?`,
		"{type: Devices, config: {podGets: shares}}":                                    `config.podGets: Unknown field: did you mean "allocationMode"?`,
		"{type: Devices, config: {strategy: binpack}}":                                  `config.strategy: Unknown field: did you mean "scoringStrategy.type"?`,
		"{type: Devices, config: {units: named}}":                                       `config.units: Unsupported value: "named": supported values: "None", "Numbered", "Named"`,
		"{type: GPUMemory, config: {chooseCard: spread}}":                               `config.chooseCard: Unknown field: did you mean "gpuSelection"?`,
		"{type: GPUMemory, config: {scoreNodes: leastWaste}}":                           `config.scoreNodes: Unknown field: did you mean "scoringStrategy.type"?`,
		"{type: GPUMemory, config: {multiCard: true}}":                                  `config.multiCard: Unknown field: did you mean "multiGPU"?`,
		"{type: HardwareHealth, config: {rules: [{pods: {askFor: [nvidia.com/gpu]}}]}}": `config.rules[0].pods.askFor: Unknown field: did you mean "resources"?`,
		"{type: HardwareHealth, config: {whenStale: reject}}":                           `config.whenStale: Unsupported value: "reject": supported values: "Neutral", "Reject"`,
		"{type: ImageLocality, config: {scoreBy: size}}":                                `config.scoreBy: Unknown field: did you mean "scoringStrategy.type"?`,
		"{type: Licences}": `type: Unsupported value: "Licences": did you mean "Licenses"?`,
		"{type: Licenses, config: {features: [{name: a, spare: 1}]}}":                               `config.features[0].spare: Unknown field: did you mean "reservedSeats"?`,
		"{type: Licenses, config: {features: [{name: a, server: {counts: everybody}}]}}":            `config.features[0].server.counts: Unknown field: did you mean "usedIncludesPods"?`,
		"{type: Licenses, config: {features: [{name: a, server: {checkoutAfter: 5m}}]}}":            `config.features[0].server.checkoutAfter: Unknown field: did you mean "checkoutDelay"?`,
		"{type: RemoteClusters, config: {homeScore: 50}}":                                           `config.homeScore: Unknown field: did you mean "scoringStrategy.localScore"?`,
		"{type: RemoteClusters, config: {settle: 10s}}":                                             `config.settle: Unknown field: did you mean "metricDelay"?`,
		"{type: Rules, config: {filter: [{name: A, expression: 'true', onEvaluationError: pass}]}}": `config.filter[0].onEvaluationError: Unknown field: did you mean "failurePolicy"?`,
		"{type: Utilization, config: {model: leastUsed}}":                                           `config.model: Unknown field: did you mean "scoringStrategy.type"?`,
		"{type: Utilization, config: {target: 50}}":                                                 `config.target: Unknown field: did you mean "scoringStrategy.targetUtilization"?`,
		"{type: Utilization, config: {safeUse: 50}}":                                                `config.safeUse: Unknown field: did you mean "scoringStrategy.safeUtilization"?`,
		"{type: Utilization, config: {maxRisk: 50}}":                                                `config.maxRisk: Unknown field: did you mean "scoringStrategy.maxRisk"?`,
		"{type: Utilization, config: {margin: 2}}":                                                  `config.margin: Unknown field: did you mean "scoringStrategy.margin"?`,
		"{type: Utilization, config: {sensitivity: 2}}":                                             `config.sensitivity: Unknown field: did you mean "scoringStrategy.sensitivity"?`,
	} {
		text := "apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nprofiles:\n- policies:\n  - " + former + "\n"
		_, err := config.Parse("f.yaml", []byte(text), config.Types{Policies: standard.Types(), Signals: sources.Types()})
		if err == nil || !strings.Contains(err.Error(), "f.yaml:5: profiles[0].policies[0]."+want) {
			t.Errorf("%s: got %v, want %s", former, err, want)
		}
	}
}
