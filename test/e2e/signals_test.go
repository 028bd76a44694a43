package e2e

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/test/controlplane"
)

// Data in nodes is a signal like any other: here, prices in a label, on one node in thousandths.
func TestSignalFromNodes(t *testing.T) {
	th := open(t)
	priced := func(name, price string) controlplane.NodeSpec {
		return controlplane.NodeSpec{Name: name, Labels: map[string]string{"example.com/price": price}}
	}
	th.nodes(priced("dear", "0.4"), priced("cheap", "100m"), priced("unclear", "little"))
	o := th.outboard(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
signals:
- {name: price, interval: 1s, nodes: {label: example.com/price}}
profiles:
- policies:
  - {type: Cost, weight: 1, config: {prices: [{signal: price}], whenUnknown: Reject, maxPrice: 10}}
`)
	th.scheduler(schedulerConfig(extender{o: o, verbs: "filter prioritize bind"}))
	values := func() string { return th.metric(o, `outboard_signal_values{signal="price"} `) }
	th.eventually("both prices are known", func() bool { return values() == "2" })
	if pod := th.bound(controlplane.PodSpec{Name: "first", CPU: "1"}); pod.Spec.NodeName != "cheap" {
		t.Errorf("first is on %s, want cheap", pod.Spec.NodeName)
	}
	patch := []byte(`{"metadata":{"labels":{"example.com/price":"10m"}}}`)
	if _, err := th.Client.CoreV1().Nodes().Patch(th.ctx, "unclear", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	th.eventually("three prices are known", func() bool { return values() == "3" })
	if pod := th.bound(controlplane.PodSpec{Name: "second", CPU: "1"}); pod.Spec.NodeName != "unclear" {
		t.Errorf("second is on %s, want the cheapest node at that time", pod.Spec.NodeName)
	}
}
