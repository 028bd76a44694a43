package e2e

import (
	"maps"
	"regexp"
	"strings"
)

// preemptionLog is what kube-scheduler's log, with -v=3, says about nominated pods: its scheduling cycles come one after the other, so at the
// beginning of each one the lines before it say which pods it counts on which nodes.
type preemptionLog struct {
	nominated map[string]string // the node of each nominated pod
	binding   map[string]bool   // the pods that are being bound, to nodes that the log does not say yet: the next cycle does not count them as nominated
	victims   map[string]string // the node of each evicted pod
	freed     map[string]bool   // the nodes from which kube-scheduler has seen an evicted pod go, and to which it has bound no pod since
	cycles    map[string]cycle  // the latest one of each pod
	// taken are the pods that were bound to a node in a cycle in which kube-scheduler counted another pod there.
	taken []string
	// needless are the pods that were nominated to a freed node, as the only ones, and preempt pods on another one.
	needless []string
}

// cycle is what kube-scheduler knew in the beginning of a scheduling cycle.
type cycle struct {
	nominated map[string]string
	freed     map[string]bool
}

var (
	logMessage = regexp.MustCompile(`\] "([^"]*)"`)
	logField   = regexp.MustCompile(`(pod|node|victim|nominatedNodeName|nominatingMode)="?([^"\s]*)`)
)

func readPreemptions(log string) *preemptionLog {
	p := &preemptionLog{nominated: map[string]string{}, binding: map[string]bool{}, victims: map[string]string{}, freed: map[string]bool{}, cycles: map[string]cycle{}}
	for line := range strings.Lines(log) {
		if message := logMessage.FindStringSubmatch(line); message != nil {
			fields := map[string]string{}
			for _, f := range logField.FindAllStringSubmatch(line, -1) {
				fields[f[1]] = strings.TrimPrefix(f[2], "default/")
			}
			p.read(message[1], fields)
		}
	}
	return p
}

func (p *preemptionLog) read(message string, fields map[string]string) {
	pod, node := fields["pod"], fields["node"]
	switch {
	case message == "Attempting to schedule pod":
		c := cycle{maps.Clone(p.nominated), maps.Clone(p.freed)}
		maps.DeleteFunc(c.nominated, func(other, _ string) bool { return p.binding[other] })
		if len(p.binding) > 0 { // perhaps to a freed node
			c.freed = nil
		}
		p.cycles[pod], p.binding[pod] = c, true
	case strings.HasPrefix(message, "Unable to schedule pod"), message == "Error scheduling pod; retrying", message == "Delete event for unscheduled pod":
		delete(p.binding, pod)
	case message == "the target node for the preemption is determined":
		if was := p.nominated[pod]; was != "" && p.cycles[pod].freed[was] && p.cycles[pod].count(was) == 1 {
			p.needless = append(p.needless, pod+": "+was+", "+node)
		}
		p.nominated[pod] = node
	case message == "Preemptor Pod preempted victim Pod", strings.HasPrefix(message, "Victim Pod is already being deleted"):
		p.victims[fields["victim"]] = node
	case message == "Delete event for scheduled pod" && p.victims[pod] != "":
		p.freed[p.victims[pod]] = true
	case message == "Updating pod condition and nominated node name" && fields["nominatedNodeName"] == "" && fields["nominatingMode"] == "1":
		delete(p.nominated, pod)
	case message == "Successfully bound pod to node":
		if p.nominated[pod] != node && p.cycles[pod].count(node) > 0 {
			p.taken = append(p.taken, pod+": "+node)
		}
		delete(p.nominated, pod)
		delete(p.binding, pod)
		delete(p.freed, node)
	}
}

// count returns how many pods were nominated to the node.
func (c cycle) count(node string) (pods int) {
	for _, to := range c.nominated {
		if to == node {
			pods++
		}
	}
	return pods
}
