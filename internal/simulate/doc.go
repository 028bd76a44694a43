// Package simulate schedules pods on a cluster that exists only in memory, to measure how well a
// set of policies fills it. The engine and the policies are the same ones that answer
// kube-scheduler, with Views from the same Builder, and allocations follow the rules of ledgers.
// [Scheduler] simulates kube-scheduler's part: docs/simulate.md says what of it.
//
// Time is simulated: it advances from event to event, and does not depend on a clock. The same
// input and seed give the same result.
package simulate
