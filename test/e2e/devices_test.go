package e2e

import (
	"slices"
	"strings"
	"testing"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// fpgas allocates FPGAs whose names are in an annotation of the node.
const fpgas = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- policies:
  - type: Devices
    weight: 1
    config: {resource: example.com/fpga, units: Named, unitsFrom: {annotation: example.com/fpgas}}
`

// With ignoredByScheduler: true only this policy counts the devices, on a node whose kubelet does
// not report them; with false kube-scheduler also counts them. In both cases each pod gets its own
// units in its annotation, the surplus pod waits, and it runs when units are free.
func TestDevicesAreHandedOutOnce(t *testing.T) {
	t.Parallel()
	for name, ignored := range map[string]bool{"ignored by kube-scheduler": true, "counted by kube-scheduler": false} {
		t.Run(name, func(t *testing.T) {
			th := theater.Open(t)
			node := controlplane.NodeSpec{Name: "a", Annotations: map[string]string{"example.com/fpgas": "fpga0,fpga1,fpga2"}}
			if !ignored {
				node.Resources = map[string]string{"example.com/fpga": "3"}
			}
			th.Nodes(node)
			o := th.Outboard(fpgas)
			config := theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter prioritize preempt bind", Managed: []string{"example.com/fpga"}})
			if !ignored {
				config = strings.ReplaceAll(config, "ignoredByScheduler: true", "ignoredByScheduler: false")
			}
			th.Scheduler(config)
			pod := func(name, count string) controlplane.PodSpec {
				return controlplane.PodSpec{Name: name, Resources: map[string]string{"example.com/fpga": count}}
			}
			two, one := th.Bound(pod("two", "2")), th.Bound(pod("one", "1"))
			const told = "outboard.dev/example.com.fpga"
			units := append(strings.Split(two.Annotations[told], ","), one.Annotations[told])
			if slices.Sort(units); !slices.Equal(units, []string{"fpga0", "fpga1", "fpga2"}) {
				t.Errorf("the annotations of the pods are %q and %q", two.Annotations[told], one.Annotations[told])
			}
			waits := th.Placed(pod("more", "1"))
			if waits.Waiting == "" {
				t.Fatalf("the annotation of the surplus pod is %q", waits.Pod.Annotations[told])
			}
			if want := "node(s) do not have enough free devices"; ignored && !strings.Contains(waits.Waiting, want) {
				t.Errorf("it waits because of %q, want %q", waits.Waiting, want)
			}
			if err := controlplane.DeletePod(th.Ctx, th.Client, one); err != nil {
				t.Fatal(err)
			}
			if more := th.WillBeBound(waits.Pod); more.Annotations[told] != one.Annotations[told] {
				t.Errorf("the annotation of the pod that waited is %q, want %q", more.Annotations[told], one.Annotations[told])
			}
		})
	}
}
