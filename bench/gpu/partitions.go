package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/gpushare"
	"outboard.dev/outboard/internal/simulate"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/mig"
	"outboard.dev/outboard/test/stage"
)

// gpusPerNode is how many GPUs a node has that MIG divides.
const gpusPerNode = 8

// partitioned is a cluster in which MIG divides most GPUs and the others are shared, and count pods, of which 3 in 4 request a partition and
// the others a share. The partitions need about all that there is.
func partitioned(count int, seed uint64) trace {
	random := rand.New(rand.NewPCG(seed, 1))
	t := trace{seed: seed, percentage: 100, devices: &simulate.Devices{Classes: []*resourcev1.DeviceClass{mig.DeviceClass()}}}
	for i := range max(1, count/36) {
		node, published := mig.Node(fmt.Sprintf("mig-%02d", i), gpusPerNode)
		node.Status.Capacity = node.Status.Capacity.DeepCopy()
		node.Status.Capacity[corev1.ResourcePods] = resource.MustParse("110")
		node.Status.Allocatable = node.Status.Capacity
		t.nodes, t.devices.Slices = append(t.nodes, node), append(t.devices.Slices, published...)
	}
	for i := range max(1, count/72) {
		node := t.nodes[0].DeepCopy()
		node.Name, node.Labels = fmt.Sprintf("shared-%02d", i), map[string]string{modelLabel: "T4"}
		published := node.DeepCopy()
		published.Status.Capacity[gpushare.Count] = *resource.NewQuantity(4, resource.DecimalSI)
		t.nodes, t.devices.Slices = append(t.nodes, node), append(t.devices.Slices, publish(published, random)...)
	}
	t.addTemplates()
	// By template: the profiles, and the shares.
	weights := []int{8, 2, 4, 2, 1, 1, 2, 2, 2}
	var draw []int
	for i, weight := range weights {
		for range weight {
			draw = append(draw, i)
		}
	}
	for i := range count {
		template := t.devices.Templates[draw[random.IntN(len(draw))]]
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: template.Namespace, Name: fmt.Sprintf("pod-%04d", i)}}
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template.Name}}
		pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}, Claims: []corev1.ResourceClaim{{Name: "gpu"}},
		}}}
		t.mix = append(t.mix, pod)
	}
	return t
}

// addTemplates adds one template for each profile, and three for shares.
func (t *trace) addTemplates() {
	add := func(spec resourcev1.ResourceClaimSpec) {
		template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "trace", Name: fmt.Sprint("gpu-", len(t.devices.Templates))}}
		template.Spec.Spec = spec
		t.devices.Templates = append(t.devices.Templates, template)
	}
	for _, profile := range mig.A100 {
		add(mig.Claim("", profile.Name).Spec)
	}
	for _, share := range []int64{250, 400, 700} {
		spec := mig.Claim("", "").Spec
		spec.Devices.Requests[0].Exactly.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": memory(share)}}
		spec.Devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: fmt.Sprintf(`device.attributes[%q].productName == "T4"`, gpuDriver),
		}}}
		add(spec)
	}
}

// comparePartitions places count pods in a simulation and, one after the other, in a cluster with the policy, and compares nodes and devices.
func (o *options) comparePartitions(ctx context.Context, count int, out, progress io.Writer) (err error) {
	o.trace = partitioned(count, o.seed)
	a := &claimArms[1]
	s, err := stage.Set(ctx, stage.Options{Outboard: o.binary})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	p := &play{Stage: s, devices: o.devices}
	p.pods = append(p.pods, o.mix...)
	if err := p.setUp(ctx, o, a); err != nil {
		return err
	}
	want, err := o.simulatePartitions(ctx, p, a)
	if err != nil {
		return err
	}
	same, placed, different, partitions := 0, 0, 0, 0
	for i, pod := range p.pods {
		got, err := p.placeOne(ctx, pod)
		if err != nil {
			return fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		if expected := describePlacement(&want[i]); got == expected {
			same++
		} else if different++; different <= 10 {
			fmt.Fprintf(out, "pod %s: %s; simulated: %s\n", pod.Name, got, expected)
		}
		if want[i].Node != "" {
			placed++
		}
		if p.template(pod) < len(mig.A100) {
			partitions++
		}
		if (i+1)%50 == 0 {
			fmt.Fprintf(progress, "%d pods, %d as simulated\n", i+1, same)
		}
	}
	fmt.Fprintf(out, "%d nodes, %d pods, of which %d request a partition and the simulation placed %d: %d have the same node and device\n",
		len(o.nodes), len(p.pods), partitions, placed, same)
	if skipped := p.skipped(); skipped > 0 {
		return fmt.Errorf("kube-scheduler placed %d pods without Outboard", skipped)
	}
	if different > 0 {
		return fmt.Errorf("%d pods are placed differently", different)
	}
	return nil
}

// simulatePartitions places the pods in a simulation. Its nodes have the UIDs of those of the API server, which decide between equal nodes as
// long as nothing is learned.
func (o *options) simulatePartitions(ctx context.Context, p *play, a *arm) (_ []simulate.Placement, err error) {
	nodes, err := p.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	w := o.world()
	if w.Scheduler, w.Extenders, err = a.simulated(); err != nil {
		return nil, err
	}
	w.Nodes, w.Scheduler.PercentageOfNodesToScore = nil, o.percentage
	for i := range nodes.Items {
		w.Nodes = append(w.Nodes, &nodes.Items[i])
	}
	return w.Place(ctx, o.mix, o.seed)
}

func describePlacement(p *simulate.Placement) string {
	if p.Node == "" {
		return "none"
	}
	return p.Node + "/" + p.Devices[0].Device
}

// placeOne creates the pod and returns where it is, as describePlacement does, when Outboard knows. Like the simulation, it deletes
// a pod that fits on no node.
func (p *play) placeOne(ctx context.Context, like *corev1.Pod) (string, error) {
	pod, err := p.createClaim(ctx, newPod(like))
	if err != nil {
		return "", err
	}
	claimed := pod.DeepCopy()
	pods, claims := p.Client.CoreV1().Pods(pod.Namespace), p.Client.ResourceV1().ResourceClaims(pod.Namespace)
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	for pod.Spec.NodeName == "" && !unschedulable(pod) {
		if pod, err = pods.Get(ctx, pod.Name, metav1.GetOptions{}); err != nil {
			return "", err
		}
		time.Sleep(5 * time.Millisecond)
	}
	if pod.Spec.NodeName == "" {
		return "none", errors.Join(controlplane.DeletePod(ctx, p.Client, pod), claims.Delete(ctx, pod.Name, metav1.DeleteOptions{}), p.awaitSeen(ctx, pod, func(d *explain.Document) bool { return !d.Known }))
	}
	claim, err := claims.Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	err = p.awaitSeen(ctx, pod, func(d *explain.Document) bool { return d.Node != "" })
	if err == nil {
		err = p.awaitAllocation(ctx, claimed)
	}
	return pod.Spec.NodeName + "/" + claim.Status.Allocation.Devices.Results[0].Device, err
}

// awaitAllocation waits until Outboard no longer says what the claim of the pod would get when it is asked where the pod would fit.
func (p *play) awaitAllocation(ctx context.Context, pod *corev1.Pod) error {
	pod = pod.DeepCopy()
	pod.APIVersion, pod.Kind = "v1", "Pod"
	manifest, err := yaml.Marshal(pod)
	if err != nil {
		return err
	}
	for {
		doc, err := explain.Try(ctx, http.DefaultClient, p.outboard.Admin, manifest, nil)
		if err != nil {
			return err
		}
		text, err := json.Marshal(doc)
		if err != nil || !bytes.Contains(text, []byte("would get ")) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// awaitSeen waits until Outboard has seen what happened to the pod. Claims come by a watch of their own.
func (p *play) awaitSeen(ctx context.Context, pod *corev1.Pod, seen func(*explain.Document) bool) error {
	for {
		doc, err := explain.Fetch(ctx, http.DefaultClient, p.outboard.Admin, url.Values{"namespace": {pod.Namespace}, "pod": {pod.Name}})
		if err != nil {
			return err
		}
		if seen(doc) {
			break
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
