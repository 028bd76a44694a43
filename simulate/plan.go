package simulate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// File is what one file holds: objects, and jobs of a trace.
type File struct {
	Objects
	Jobs []Job
}

// Plan says which pods of some files are played, and how.
//
// A file in which pods run is taken for a dump of a cluster: those of its pods that are
// pending come first, once each, and the pods that come after them are like those that
// run. Pods of a file in which none runs are a mix to draw from instead. Pods of
// DaemonSets, and static pods, belong to their nodes: they stay there, and none like them
// come.
type Plan struct {
	Nodes []*corev1.Node
	// Running stay on their nodes.
	Running []*corev1.Pod
	// Pending come first, once each.
	Pending []Job
	// Mix come then, each once, and after that others like them.
	Mix []Job
	// OfNodes is how many of Running belong to their nodes, and LeftOut how many pods that
	// do are pending, and are not played.
	OfNodes, LeftOut int
	// Again says that the mix is that of the pods that run.
	Again bool
}

// NewPlan makes a plan of the files. empty takes the pods that run from their nodes, but for
// those that belong to these.
func NewPlan(files []File, empty bool) *Plan {
	p := &Plan{}
	var workload, pending []*corev1.Pod
	for _, f := range files {
		p.Nodes = append(p.Nodes, f.Nodes...)
		p.Mix = append(p.Mix, f.Jobs...)
		running, waiting := f.divide()
		for _, pod := range running {
			if belongsToNode(pod) {
				p.Running, p.OfNodes = append(p.Running, pod), p.OfNodes+1
			} else {
				workload = append(workload, pod)
			}
		}
		for _, pod := range waiting {
			switch {
			case belongsToNode(pod):
				p.LeftOut++
			case len(running) > 0:
				pending = append(pending, pod)
			default:
				p.Mix = append(p.Mix, Job{Pod: pod})
			}
		}
	}
	if p.Again = len(p.Mix) == 0 && len(workload) > 0; p.Again || empty {
		p.Mix = append(p.Mix, Again(workload)...)
	}
	if !empty {
		p.Running = append(p.Running, workload...)
	}
	if p.Pending = Again(pending); len(p.Mix) == 0 {
		p.Mix, p.Pending = p.Pending, nil
	}
	return p
}

// divide returns the pods that are on a node and have not ended, and the others that have
// not.
func (o *Objects) divide() (running, waiting []*corev1.Pod) {
	for _, p := range o.Pods {
		switch {
		case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		case p.Spec.NodeName != "":
			running = append(running, p)
		default:
			waiting = append(waiting, p)
		}
	}
	return running, waiting
}

// belongsToNode says whether the pod is there because its node is: one of a DaemonSet, or
// a static one.
func belongsToNode(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" || o.Kind == "Node" })
}

// Demand is what the pods that come ask for, each once.
func (p *Plan) Demand(name corev1.ResourceName) int64 { return asked(p.Mix, name) }

// Text says in one sentence after another what is played. arriving says for how long pods
// come.
func (p *Plan) Text(arriving string) []string {
	stay := "no pod stays there"
	if len(p.Running) > 0 {
		stay = count(len(p.Running), "pod stays there", "pods stay there")
	}
	if p.OfNodes > 0 {
		stay += fmt.Sprintf(", %d of them of DaemonSets or static", p.OfNodes)
	}
	lines := []string{fmt.Sprintf("%s; %s.", count(len(p.Nodes), "node", "nodes"), stay)}
	if len(p.Pending) > 0 {
		lines = append(lines, count(len(p.Pending), "pending pod comes", "pending pods come")+" first.")
	}
	source := "the " + count(len(p.Mix), "pod", "pods") + " of the files"
	if p.Again {
		source = "the " + count(len(p.Mix), "pod that runs", "pods that run")
	}
	lines = append(lines, fmt.Sprintf("Pods like %s come %s.", source, arriving))
	if p.LeftOut > 0 {
		lines = append(lines, count(p.LeftOut, "pending pod of a DaemonSet is", "pending pods of DaemonSets are")+" left out.")
	}
	return lines
}

func count(n int, one, many string) string {
	if n != 1 {
		one = many
	}
	return fmt.Sprintf("%d %s", n, one)
}

// Resources names what nodes have, in order, but for how many pods they may have.
func Resources(nodes []*corev1.Node) string {
	var names []string
	for _, n := range nodes {
		for name, quantity := range n.Status.Allocatable {
			if name != corev1.ResourcePods && quantity.Sign() > 0 && !slices.Contains(names, string(name)) {
				names = append(names, string(name))
			}
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
