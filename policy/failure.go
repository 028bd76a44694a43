package policy

// FailurePolicy defines how a request for filter, prioritize or preempt handles an error or panic of a policy. A bind
// request always fails. The zero value is Fail.
type FailurePolicy string

const (
	// Fail rejects every node: the pod stays pending instead of being placed without the policy.
	Fail FailurePolicy = "Fail"
	// Ignore excludes the policy from the request, which is decided as if the profile did not have it. It is not for a
	// Reserver: filter would pass nodes to which bind cannot bind the pod.
	Ignore FailurePolicy = "Ignore"
)
