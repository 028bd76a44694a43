package policytest

// CheckScenario is what RunScenarios does with one file.
var CheckScenario = checkScenario
