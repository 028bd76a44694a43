package policy

// FailurePolicy defines how a request for filter, prioritize or preempt handles an error or panic
// of a policy. A bind request always fails. The zero value is Fail.
type FailurePolicy string

const (
	// Fail rejects every node: the pod stays pending instead of being placed without the policy.
	Fail FailurePolicy = "Fail"
	// Ignore decides the request as if the profile did not have the policy. If it has filtered all
	// nodes already, and fails when it scores them for the shortlist, only its scores are missing.
	// Ignore is not for a Reserver: filter would pass nodes to which bind cannot bind the pod.
	Ignore FailurePolicy = "Ignore"
)
