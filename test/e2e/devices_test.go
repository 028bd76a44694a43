package e2e

import (
	"slices"
	"strings"
	"testing"

	"outboard.dev/outboard/controlplane"
)

// fpgas hands out FPGAs that nodes name in an annotation.
const fpgas = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
profiles:
- policies:
  - name: Devices
    weight: 1
    config: {resource: example.com/fpga, units: named, unitsFrom: example.com/fpgas}
`

// With ignoredByScheduler: true nobody but this policy counts, on a node whose kubelet knows nothing of the devices; with
// false kube-scheduler counts, too. Either way each pod is told units of its own, the pod too many waits, and it runs when
// units are free.
func TestDevicesAreHandedOutOnce(t *testing.T) {
	for name, ignored := range map[string]bool{"ignored by kube-scheduler": true, "counted by kube-scheduler": false} {
		t.Run(name, func(t *testing.T) {
			th := open(t)
			node := controlplane.NodeSpec{Name: "a", Annotations: map[string]string{"example.com/fpgas": "fpga0,fpga1,fpga2"}}
			if !ignored {
				node.Resources = map[string]string{"example.com/fpga": "3"}
			}
			th.nodes(node)
			o := th.outboard(fpgas)
			config := schedulerConfig(extender{o: o, verbs: "filter prioritize preempt bind", managed: []string{"example.com/fpga"}})
			if !ignored {
				config = strings.ReplaceAll(config, "ignoredByScheduler: true", "ignoredByScheduler: false")
			}
			th.scheduler(config)
			pod := func(name, count string) controlplane.PodSpec {
				return controlplane.PodSpec{Name: name, Resources: map[string]string{"example.com/fpga": count}}
			}
			two, one := th.bound(pod("two", "2")), th.bound(pod("one", "1"))
			const told = "outboard.dev/example.com.fpga"
			units := append(strings.Split(two.Annotations[told], ","), one.Annotations[told])
			if slices.Sort(units); !slices.Equal(units, []string{"fpga0", "fpga1", "fpga2"}) {
				t.Errorf("the pods were told %q and %q", two.Annotations[told], one.Annotations[told])
			}
			waits := th.place(pod("more", "1"))
			if waits.Waiting == "" {
				t.Fatalf("the pod too many was told %q", waits.Pod.Annotations[told])
			}
			if want := "node(s) have too few free devices"; ignored && !strings.Contains(waits.Waiting, want) {
				t.Errorf("it waits because %q, want %q", waits.Waiting, want)
			}
			if err := controlplane.DeletePod(th.ctx, th.Client, one); err != nil {
				t.Fatal(err)
			}
			if more := th.willBeBound(waits.Pod); more.Annotations[told] != one.Annotations[told] {
				t.Errorf("the pod that waited was told %q, want %q", more.Annotations[told], one.Annotations[told])
			}
		})
	}
}
