// Package migrate computes what pods that share GPUs by resources, as gpushare and GPUMemory have them, need to use ResourceClaims instead:
// a DeviceClass, a ResourceClaimTemplate for each size in each namespace, and the change of each workload's pods. It lists what
// ResourceClaims have no equivalent for.
package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresource "k8s.io/component-helpers/resource"

	"outboard.dev/outboard/internal/gpushare"
	"outboard.dev/outboard/snapshot"
)

// maxGPUs is how many devices one request of a claim may have.
const maxGPUs = resourcev1.AllocationResultsMaxSize

// Options say what the templates request.
type Options struct {
	// Class is the DeviceClass, and Driver that of its devices.
	Class, Driver string
	// Capacity is the name of the devices' capacity that is their memory.
	Capacity string
	// Unit is the unit in which pods request memory: Gi or Mi.
	Unit string
	// ModelAnnotation is the key of the pod annotation with the models that the pod allows.
	ModelAnnotation string
}

// Plan is the result.
type Plan struct {
	Class     *resourcev1.DeviceClass `json:"deviceClass"`
	Templates []Template              `json:"templates"`
	// Missing is what has no equivalent, or needs a decision.
	Missing []Missing `json:"missing"`
	// Pods is how many pods have not ended, whatever they request.
	Pods int `json:"pods"`
}

// Template is a ResourceClaimTemplate with the workloads whose pods need it.
type Template struct {
	Object    *resourcev1.ResourceClaimTemplate `json:"object"`
	Workloads []Workload                        `json:"workloads"`
}

// Workload is a controller of pods, or one pod.
type Workload struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	// Pods is how many of its pods there are, and Containers those that request GPUs.
	Pods       int      `json:"pods"`
	Containers []string `json:"containers"`
}

func (w *Workload) String() string { return fmt.Sprintf("%s %s/%s", w.Kind, w.Namespace, w.Name) }

// Missing is something that a workload has now, and for which ResourceClaims have no equivalent.
type Missing struct {
	Workload string `json:"workload"`
	What     string `json:"what"`
}

// Of returns the plan for the pods that have not ended and request GPUs.
func Of(pods []*corev1.Pod, o Options) *Plan {
	p := &Plan{Class: o.class(), Templates: []Template{}, Missing: []Missing{}}
	for _, pod := range pods {
		if snapshot.Ended(pod) {
			continue
		}
		p.Pods++
		memory, count, containers := requested(pod)
		if len(containers) == 0 {
			continue
		}
		kind, name := workload(pod)
		w := Workload{Namespace: pod.Namespace, Kind: kind, Name: name, Pods: 1, Containers: containers}
		if text, ok := pod.Labels[gpushare.Count]; ok && count == 0 {
			count, _ = strconv.ParseInt(text, 10, 32) // 0: rejected below
		} else {
			count = max(count, 1)
		}
		for _, what := range o.missing(pod, memory, count, containers) {
			if m := (Missing{w.String(), what}); !slices.Contains(p.Missing, m) {
				p.Missing = append(p.Missing, m)
			}
		}
		if count >= 1 && count <= maxGPUs && memory%count == 0 {
			p.add(o.template(pod.Namespace, memory/count, count), w)
		}
	}
	slices.SortFunc(p.Templates, func(a, b Template) int {
		return cmp.Or(cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	slices.SortFunc(p.Missing, func(a, b Missing) int {
		return cmp.Or(cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.What, b.What))
	})
	return p
}

// requested returns what the pod requests, by kube-scheduler's rules for init containers, and which of its containers request any.
func requested(pod *corev1.Pod) (memory, count int64, containers []string) {
	for _, all := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range all {
			if r := all[i].Resources; amount(r.Requests, r.Limits, gpushare.Memory) > 0 || amount(r.Requests, r.Limits, gpushare.Count) > 0 {
				containers = append(containers, all[i].Name)
			}
		}
	}
	requests, limits := podresource.PodRequests(pod, podresource.PodResourcesOptions{}), podresource.PodLimits(pod, podresource.PodResourcesOptions{})
	return amount(requests, limits, gpushare.Memory), amount(requests, limits, gpushare.Count), containers
}

// amount returns the larger of both: a manifest may have only limits, and the API server sets requests to them.
func amount(requests, limits corev1.ResourceList, name corev1.ResourceName) int64 {
	request, limit := requests[name], limits[name]
	return max(request.Value(), limit.Value())
}

// workload returns what the pod spec is written in: the controller of the pod, the Deployment of a ReplicaSet, or the pod itself.
func workload(pod *corev1.Pod) (kind, name string) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return "Pod", pod.Name
	}
	if hash := pod.Labels["pod-template-hash"]; owner.Kind == "ReplicaSet" && hash != "" && strings.HasSuffix(owner.Name, "-"+hash) {
		return "Deployment", strings.TrimSuffix(owner.Name, "-"+hash)
	}
	return owner.Kind, owner.Name
}

// missing returns what of the pod has no equivalent.
func (o *Options) missing(pod *corev1.Pod, memory, count int64, containers []string) (missing []string) {
	say := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }
	if models := pod.Annotations[o.ModelAnnotation]; models != "" {
		say("it allows only the GPU models %s: write a selector for the driver's attribute into the template, such as productName, whose values differ from those of the node label", models)
	}
	if len(containers) > 1 {
		say("the containers %s request GPUs of their own: with the template, they share all devices of the claim", strings.Join(containers, ", "))
	}
	if slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return slices.Contains(containers, c.Name) }) {
		say("an init container requests GPUs: with the template, they are its own until the pod ends")
	}
	if memory == 0 {
		say("it requests whole GPUs: a claim without an amount takes all memory, unless the driver publishes a smaller default")
	}
	switch {
	case count < 1 || count > maxGPUs:
		say("it requests GPUs in a number from which no claim can be made: the maximum is %d", maxGPUs)
	case memory%count != 0:
		say("%d of memory cannot be divided by %d GPUs", memory, count)
	}
	if pod.Spec.Priority != nil && *pod.Spec.Priority > 0 && (pod.Spec.PreemptionPolicy == nil || *pod.Spec.PreemptionPolicy != corev1.PreemptNever) {
		say("it has priority %d: kube-scheduler evicts no pods to free devices for claims", *pod.Spec.Priority)
	}
	return missing
}

// add adds the workload to the template, which may be there already.
func (p *Plan) add(t *resourcev1.ResourceClaimTemplate, w Workload) {
	i := slices.IndexFunc(p.Templates, func(other Template) bool {
		return other.Object.Namespace == t.Namespace && other.Object.Name == t.Name
	})
	if i < 0 {
		i = len(p.Templates)
		p.Templates = append(p.Templates, Template{Object: t})
	}
	all := &p.Templates[i].Workloads
	j := slices.IndexFunc(*all, func(other Workload) bool {
		return other.Kind == w.Kind && other.Name == w.Name && slices.Equal(other.Containers, w.Containers)
	})
	if j < 0 {
		*all = append(*all, w)
	} else {
		(*all)[j].Pods++
	}
}

func (o *Options) class() *resourcev1.DeviceClass {
	c := &resourcev1.DeviceClass{TypeMeta: metav1.TypeMeta{APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: "DeviceClass"}, ObjectMeta: metav1.ObjectMeta{Name: o.Class}}
	expression := fmt.Sprintf("device.driver == %q", o.Driver)
	if o.Driver == "gpu.nvidia.com" { // which has partitions and other types as well
		expression += fmt.Sprintf(" && device.attributes[%q].type == \"gpu\"", o.Driver)
	}
	c.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
	return c
}

// template returns the template for so many GPUs, each with this share of its memory; 0 is all of it.
func (o *Options) template(namespace string, share, count int64) *resourcev1.ResourceClaimTemplate {
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: o.Class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count}
	name := "gpu-whole"
	if share > 0 {
		quantity := *resource.NewQuantity(share<<map[string]int{"Gi": 30, "Mi": 20}[o.Unit], resource.BinarySI)
		name = fmt.Sprintf("gpu-%d%s", share, strings.ToLower(o.Unit))
		exactly.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{resourcev1.QualifiedName(o.Capacity): quantity}}
	}
	if count > 1 {
		name += fmt.Sprintf("-x%d", count)
	}
	t := &resourcev1.ResourceClaimTemplate{TypeMeta: metav1.TypeMeta{APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: "ResourceClaimTemplate"}}
	t.Namespace, t.Name = namespace, name
	t.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: exactly}}
	return t
}

// requests describes the request of the template.
func (t *Template) requests() string {
	r := t.Object.Spec.Spec.Devices.Requests[0].Exactly
	if r.Capacity == nil {
		return fmt.Sprintf("%d whole", r.Count)
	}
	var amounts []string
	for _, name := range slices.Sorted(maps.Keys(r.Capacity.Requests)) {
		q := r.Capacity.Requests[name]
		amounts = append(amounts, fmt.Sprintf("%s of its %s", q.String(), name))
	}
	return fmt.Sprintf("%d with %s", r.Count, strings.Join(amounts, ", "))
}
