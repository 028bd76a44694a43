package simulate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

// Plan defines which pods of some files are simulated, and how.
//
// A file with running pods counts as a dump of a cluster: its pending pods arrive first, once each,
// and the pods that come after them are copies of the running ones. If no file has running pods,
// the pods of the files are the mix to draw from. Pods of DaemonSets and static pods belong to
// their nodes: they stay there, and no copies of them come.
type Plan struct {
	Nodes   []*corev1.Node
	Devices Devices
	// Running stay on their nodes.
	Running []*corev1.Pod
	// Pending come first, once each.
	Pending []*corev1.Pod
	// Mix come next, each once, and then copies of them.
	Mix []*corev1.Pod
	// OfNodes is how many of Running belong to their nodes, and LeftOut how many pending pods of
	// DaemonSets are not simulated.
	OfNodes, LeftOut int
	// Again is true if the mix consists of copies of the running pods.
	Again bool
}

// NewPlan makes a plan from the files. With empty, it removes running pods from their nodes, except
// those that belong to their nodes.
func NewPlan(files []*Objects, empty bool) *Plan {
	p := &Plan{}
	var workload, pending []*corev1.Pod
	for _, f := range files {
		p.Nodes = append(p.Nodes, f.Nodes...)
		p.Devices.Add(&f.Devices)
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
				p.Mix = append(p.Mix, pod)
			}
		}
	}
	if p.Again = len(p.Mix) == 0 && len(workload) > 0; p.Again || empty {
		p.Mix = append(p.Mix, Again(workload)...)
	}
	if empty {
		p.Devices.release(workload)
	} else {
		p.Running = append(p.Running, workload...)
	}
	if p.Pending = Again(pending); len(p.Mix) == 0 {
		p.Mix, p.Pending = p.Pending, nil
	}
	return p
}

// divide returns the bound pods and the pending ones, both without those that have ended.
func (o *Objects) divide() (running, waiting []*corev1.Pod) {
	for _, p := range o.Pods {
		switch {
		case snapshot.Ended(p):
		case p.Spec.NodeName != "":
			running = append(running, p)
		default:
			waiting = append(waiting, p)
		}
	}
	return running, waiting
}

// belongsToNode reports whether the pod exists because of its node: a pod of a DaemonSet, or a
// static pod.
func belongsToNode(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" || o.Kind == "Node" })
}

// Demand returns what the pods of the mix request, each counted once.
func (p *Plan) Demand(name corev1.ResourceName) int64 { return requested(p.Mix, name) }

// Text describes the plan, one sentence for each line. arriving describes for how long pods come.
func (p *Plan) Text(arriving string) []string {
	stay := "no pod stays"
	if len(p.Running) > 0 {
		stay = count(len(p.Running), "pod stays", "pods stay")
	}
	if p.OfNodes > 0 {
		stay += fmt.Sprintf(", %d of them of DaemonSets or static", p.OfNodes)
	}
	lines := []string{fmt.Sprintf("%s; %s.", count(len(p.Nodes), "node", "nodes"), stay)}
	if len(p.Pending) > 0 {
		lines = append(lines, count(len(p.Pending), "pending pod arrives", "pending pods arrive")+" first.")
	}
	source := "the " + count(len(p.Mix), "pod", "pods") + " of the files"
	if p.Again {
		source = "the " + count(len(p.Mix), "pod that runs", "pods that run")
	}
	if len(p.Mix) > 0 {
		lines = append(lines, fmt.Sprintf("Pods like %s arrive %s.", source, arriving))
		if len(p.Running) > 0 {
			lines = append(lines, "Pods that stay do not count as arrived.")
		}
	}
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
