package cluster

// ExampleNode and ExamplePod are objects of a large cluster.
var (
	ExampleNode = exampleNode
	ExamplePod  = examplePod
)
