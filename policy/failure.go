package policy

// FailurePolicy says what an error or panic of a policy does to a request that judges nodes. Claiming always fails with the
// policy. The zero value is Fail.
type FailurePolicy string

const (
	// Fail fails the request: the pod waits rather than be placed without the policy's word.
	Fail FailurePolicy = "Fail"
	// Ignore leaves the policy out of this request, which is decided as if the profile did not hold it.
	Ignore FailurePolicy = "Ignore"
)
