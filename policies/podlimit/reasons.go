package podlimit

import "outboard.dev/outboard/policy"

var (
	limitReached = &policy.Reason{
		Code: "LimitReached",
		Text: "node(s) have reached their limit of matching pods",
		Unit: "free places",
	}
	invalidNodeLimit = &policy.Reason{
		Code: "InvalidNodeLimit",
		Text: "node(s) declare an invalid pod limit",
	}
)
