package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// measure counts what the API server has.
func (p *play) measure(ctx context.Context, m *measurement) error {
	pods, err := p.Client.CoreV1().Pods(p.pods[0].Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	nodes, err := p.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	allocated := int64(0)
	for i := range pods.Items {
		switch pod := &pods.Items[i]; {
		case pod.Spec.NodeName != "":
			allocated += demand(pod)
			m.bound++
		case !unschedulable(pod):
			return fmt.Errorf("pod %s is on no node, and kube-scheduler does not say that there is none for it", pod.Name)
		}
	}
	if m.pods = len(pods.Items); m.pods != len(p.pods) {
		return fmt.Errorf("there are %d pods, and %d were created", m.pods, len(p.pods))
	}
	m.allocated = 100 * float64(allocated) / float64(capacity(nodes.Items))
	m.late, m.curve = p.tally.lateShare(), p.tally.curve()
	m.first, m.anyRejected = p.tally.first()
	counted, err := p.schedulerMetrics(ctx)
	if err != nil {
		return err
	}
	m.attempts = attemptsOf(counted)
	m.skipped = p.skipped()
	if p.outboard != nil {
		m.failures = failures(p.outboard.Log())
	}
	if p.devices != nil {
		if m.claims, err = p.allocations(ctx); err == nil {
			m.allocated = 100 * float64(m.claims.used) / float64(m.claims.capacity)
			m.audit = strings.Join(m.claims.exceeded, "\n")
		}
		return err
	}
	m.audit, err = p.audit(ctx)
	return err
}

// skipped is how many filter calls failed and kube-scheduler ignored it.
func (p *play) skipped() int {
	return strings.Count(p.scheduler.Log(), "Skipping extender as it returned error")
}

// failures are why calls failed, by the last part of what the log says, which names
// neither pods nor nodes.
func failures(log string) map[string]int {
	counted := map[string]int{}
	for line := range strings.Lines(log) {
		var entry struct{ Msg, Error string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "call failed" {
			counted[strings.TrimSpace(entry.Error[strings.LastIndex(entry.Error, ": ")+1:])]++
		}
	}
	return counted
}

// audit runs `outboard gpus --audit`, and returns what it says if something is wrong. Nothing is
// under way, so nothing may be held for a pod that is not bound.
func (p *play) audit(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, p.Binary(), "gpus", "--audit", "--kubeconfig", p.Kubeconfig(), "--recheck=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var status *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case errors.As(err, &status) && status.ExitCode() == 1:
		return string(out), nil
	}
	return "", fmt.Errorf("audit: %w: %s", err, stderr.Bytes())
}
