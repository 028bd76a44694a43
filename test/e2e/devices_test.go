package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outboard.dev/outboard/test/controlplane"
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
				t.Errorf("the annotations of the pods are %q and %q", two.Annotations[told], one.Annotations[told])
			}
			waits := th.place(pod("more", "1"))
			if waits.Waiting == "" {
				t.Fatalf("the annotation of the surplus pod is %q", waits.Pod.Annotations[told])
			}
			if want := "node(s) do not have enough free devices"; ignored && !strings.Contains(waits.Waiting, want) {
				t.Errorf("it waits because of %q, want %q", waits.Waiting, want)
			}
			if err := controlplane.DeletePod(th.ctx, th.Client, one); err != nil {
				t.Fatal(err)
			}
			if more := th.willBeBound(waits.Pod); more.Annotations[told] != one.Annotations[told] {
				t.Errorf("the annotation of the pod that waited is %q, want %q", more.Annotations[told], one.Annotations[told])
			}
		})
	}
}

// The example does what its README says, and explain shows which pods hold what.
func TestDevicesExample(t *testing.T) {
	th := open(t)
	play := th.play("devices")
	waiting := map[string]string{
		"pair-3":     "1 node(s) have fewer devices in total than the pod requests, 1 node(s) have none of the devices that the pod requests",
		"signer-too": "Insufficient example.com/dongle",
	}
	placed := map[string]string{}
	for _, pod := range play.Example.Pods {
		p, err := th.Place(th.ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		if want := waiting[pod.Name]; want == "" && p.Waiting != "" || !strings.Contains(p.Waiting, want) {
			t.Errorf("%s waits because of %q, want %q", pod.Name, p.Waiting, want)
		}
		placed[pod.Name] = p.Pod.Spec.NodeName + " " + p.Pod.Annotations["outboard.dev/example.com.fpga"]
	}
	want := map[string]string{
		"one": "lab-2 fpga0", "pair-1": "lab-1 fpga0,fpga1", "pair-2": "lab-1 fpga2,fpga3", "pair-3": " ", "signer": "desk ", "signer-too": " ",
	}
	if !maps.Equal(placed, want) {
		t.Errorf("the pods got %q, want %q", placed, want)
	}
	th.audited()
	readme, err := os.ReadFile(filepath.Join(th.Root, "examples", "devices", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range th.explainPending(play.Outboard, "pair-3").Now[0].Explanations {
		for _, p := range x.Policies {
			if line := x.Node + ": " + strings.Join(p.Notes, " "); len(p.Notes) > 0 && !strings.Contains(string(readme), "\n"+line+"\n") {
				t.Errorf("the README does not contain\n%s", line)
			}
		}
	}
}
