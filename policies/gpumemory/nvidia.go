package gpumemory

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

const (
	// nvidiaMemory names the ledgers, which count in MiB. Nodes have no such resource.
	nvidiaMemory = "nvidia.com/gpu-memory"

	countLabel  = "nvidia.com/gpu.count"
	memoryLabel = "nvidia.com/gpu.memory" // MiB of one GPU

	// These are the number of GPUs of a pod, of which its containers get shares, or all. They have
	// the GPUs in common.
	gpusKey  = "outboard.dev/gpus"
	wholeKey = "outboard.dev/whole-gpus"

	// Annotations about the container NAME have a key containerKey + NAME + one of the suffixes.
	containerKey  = "nvidia.com/container."
	requestSuffix = ".gpu-memory.request"
	limitSuffix   = ".gpu-memory.limit"
	devicesSuffix = ".gpus.devices"
	modeSuffix    = ".gpu-compute.mode"

	// cdiKey is a key, or the prefix of one, of an annotation with a list of CDI devices.
	cdiKey = "nvidia.cdi.k8s.io"

	// maxContainers is how many containers have room in an allocation, each with three annotations.
	maxContainers = snapshot.MaxAllocationAnnotations / 3
	// maxContainerName is the length of a name with which the longest key has 63 characters.
	maxContainerName = 63 - len("container."+limitSuffix)
)

// nvidia is what NVIDIA's agents have in common: labels of GPU Feature Discovery say which GPUs a
// node has, and annotations of a pod how much of a GPU each container gets.
type nvidia struct{ config *Config }

func (a *nvidia) resource() string { return nvidiaMemory }

func (a *nvidia) resources() []corev1.ResourceName { return nil }

func (a *nvidia) ordered() bool { return false }

func (a *nvidia) hardware(node *corev1.Node) hardware {
	text, labeled := node.Labels[countLabel]
	if !labeled {
		return hardware{problem: notSharing}
	}
	partitioned := strings.Contains(node.Labels["nvidia.com/gpu.product"], "-MIG-")
	for key := range node.Labels {
		partitioned = partitioned || strings.HasPrefix(key, "nvidia.com/mig-") && strings.HasSuffix(key, ".count")
	}
	if partitioned { // NVML counts the GPUs, and containers get partitions
		return hardware{problem: invalidGPUs, reported: "has GPUs that are partitioned (MIG)"}
	}
	count, _ := strconv.ParseInt(text, 10, 32)
	size, _ := strconv.ParseInt(node.Labels[memoryLabel], 10, 64)
	expected := count
	if _, declared := a.config.SizesFrom.Of(node); declared {
		expected = 0 // the label counts the GPUs of one model
	}
	hw := a.config.hardwareOf(node, "label "+countLabel, expected, size)
	hw.renumbered = true
	switch {
	case hw.problem != nil:
	case !slices.ContainsFunc(hw.capacities, func(size int64) bool { return size > 0 }) || int64(len(hw.capacities)) < count:
		return hardware{problem: invalidGPUs, reported: fmt.Sprintf("has labels %s %.20q and %s %.20q", countLabel, text, memoryLabel, node.Labels[memoryLabel])}
	default:
		for name, q := range node.Status.Allocatable {
			if wholeGPU(name) && q.Sign() > 0 {
				hw.problem, hw.reported = wholeGPUs, fmt.Sprintf("allocatable %s of %s, which other pods can request", q.String(), name)
			}
		}
	}
	return hw
}

// wholeGPU reports whether NVIDIA's device plugin gives GPUs to pods that request the resource.
func wholeGPU(name corev1.ResourceName) bool {
	return name == "nvidia.com/gpu" || strings.HasPrefix(string(name), "nvidia.com/gpu.") || strings.HasPrefix(string(name), "nvidia.com/mig-")
}

// memory is what annotations request for one container, in MiB of each of its GPUs.
type memory struct{ request, limit int64 }

// memoryOf returns what the annotations of the pod request for each container. The error is about
// the first value that the agent does not accept. It ignores the other annotations, and all of them
// of a pod with whole GPUs: Outboard has written them.
func memoryOf(pod *corev1.Pod) (all map[string]memory, err error) {
	if _, whole := pod.Annotations[wholeKey]; whole {
		return nil, nil
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		rest, ok := strings.CutPrefix(key, containerKey)
		if !ok {
			continue
		}
		name, isRequest := strings.CutSuffix(rest, requestSuffix)
		limited, isLimit := strings.CutSuffix(rest, limitSuffix)
		if !isRequest && !isLimit {
			continue
		}
		value := pod.Annotations[key]
		q, err := fields.ParseQuantity(value)
		switch {
		case err != nil:
			return nil, annotationError(key, "%.100q is not a quantity, such as 6Gi", value)
		case q.CmpInt64(1<<20) < 0:
			return nil, annotationError(key, "%.100q is less than 1Mi: write a unit, such as 6Gi", value)
		case all == nil:
			all = map[string]memory{}
		}
		bytes := q.Value()
		if q.CmpInt64(math.MaxInt64) > 0 { // Value is any number then
			bytes = math.MaxInt64
		}
		if mib := min(1+(bytes-1)>>20, allocations.MaxCapacity>>10); isRequest {
			all[name] = memory{mib, all[name].limit}
		} else {
			all[limited] = memory{all[limited].request, mib}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) { // each is the default of the other
		m := all[name]
		all[name] = memory{cmp.Or(m.request, m.limit), cmp.Or(m.limit, m.request)}
		if m = all[name]; m.request > m.limit && err == nil {
			err = annotationError(containerKey+name+requestSuffix, "%dMi is above the limit, %dMi", m.request, m.limit)
		}
	}
	return all, err
}

// annotationError is an error about an annotation of a pod, whose key may be very long.
func annotationError(key, format string, values ...any) error {
	return fmt.Errorf("annotation %.200q: "+format, append([]any{key}, values...)...)
}

// misspelled returns an error about the first annotation with a key that nothing reads, but that
// seems to request a GPU: without it, the pod would run without one.
func (a *nvidia) misspelled(pod *corev1.Pod) error {
	suffixes := []string{requestSuffix, limitSuffix, devicesSuffix}
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		rest, ok := strings.CutPrefix(key, containerKey)
		name, suffix, _ := strings.Cut(rest, ".")
		known := strings.HasPrefix(suffix, "gpu-compute.") || slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(rest, s) })
		if !ok || known {
			continue
		}
		if near := fields.Nearest("."+suffix, suffixes[:2]); near != "" {
			return annotationError(key, "unknown; did you mean %.200s?", containerKey+name+near)
		}
		if slices.Contains(suffixes, "."+rest) || strings.Contains(suffix, "gpu-memory") || strings.Contains(suffix, "gpus") {
			return annotationError(key, "unknown; memory is requested by %sNAME%s", containerKey, limitSuffix)
		}
	}
	return fields.Misspelled(pod, gpusKey, wholeKey, a.config.ModelAnnotation)
}

// request implements agent: the containers share the GPUs of the pod, and count as kube-scheduler
// counts other resources.
func (a *nvidia) request(pod *corev1.Pod) (*request, error) {
	all, invalid := memoryOf(pod)
	key := wholeKey
	text, whole := pod.Annotations[key]
	count := whole
	if !whole {
		key = gpusKey
		text, count = pod.Annotations[key]
	}
	err := cmp.Or(a.misspelled(pod), invalid)
	if all == nil && invalid == nil && !count {
		return nil, err
	}
	r := &request{gpus: 1}
	if count {
		n, wrong := strconv.ParseUint(text, 10, 7)
		if wrong != nil || n < 1 {
			err, n = cmp.Or(err, annotationError(key, "%.100q is not a number of GPUs", text)), 1
		}
		r.gpus = int64(n)
	}
	asking := &corev1.Pod{Spec: corev1.PodSpec{Containers: counted(pod.Spec.Containers, all), InitContainers: counted(pod.Spec.InitContainers, all)}}
	q := snapshot.PodRequests(asking)[nvidiaMemory]
	r.share = q.Value()
	r.memory = r.share * r.gpus
	containers := getting(pod, all)
	_, both := pod.Annotations[gpusKey]
	switch {
	case err != nil:
	case whole && both:
		err = annotationError(gpusKey, "has no effect with %s: remove one of them", wholeKey)
	case !whole && len(all) == 0:
		err = annotationError(key, "needs the memory of each GPU, in %sNAME%s; for whole GPUs, use %s", containerKey, limitSuffix, wholeKey)
	case len(all) > len(asking.Spec.Containers)+len(asking.Spec.InitContainers):
		err = unknownContainer(pod, containers)
	case len(containers) > maxContainers:
		r.refused = tooManyContainers
	case slices.ContainsFunc(containers, func(name string) bool { return len(name) > maxContainerName }):
		r.refused = longName
	}
	return r, err
}

// unknownContainer returns an error about the first of the names that no container has.
func unknownContainer(pod *corev1.Pod, names []string) error {
	var existing []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		existing = append(existing, c.Name)
	}
	i := slices.IndexFunc(names, func(name string) bool { return !slices.Contains(existing, name) })
	return fmt.Errorf("container %.100q of an annotation is not in the pod: it has %.500s", names[max(i, 0)], policy.Join(existing, maxContainers))
}

// counted returns those of the containers that request GPU memory, as kube-scheduler would see them
// if it was a resource.
func counted(containers []corev1.Container, all map[string]memory) (requesting []corev1.Container) {
	for i := range containers {
		if m, ok := all[containers[i].Name]; ok {
			requests := corev1.ResourceList{nvidiaMemory: *resource.NewQuantity(m.request, resource.DecimalSI)}
			requesting = append(requesting, corev1.Container{RestartPolicy: containers[i].RestartPolicy, Resources: corev1.ResourceRequirements{Requests: requests}})
		}
	}
	return requesting
}

// getting returns the names of the containers that get the GPUs of the pod, in order: those that
// request memory, or if none does, all but the init containers.
func getting(pod *corev1.Pod, all map[string]memory) []string {
	if len(all) > 0 {
		return slices.Sorted(maps.Keys(all))
	}
	names := make([]string, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		names[i] = pod.Spec.Containers[i].Name
	}
	return names
}

// state implements agent. It reads the annotations of all agents, because pods keep them when the
// agent changes.
func (a *nvidia) state(pod *corev1.Pod) podState {
	s := podState{holder: allocations.HolderOf(pod), marked: true, notAssigned: true}
	s.pending = pod.Status.Phase == corev1.PodPending || pod.Status.Phase == ""
	if r, _ := a.request(pod); r != nil {
		if s.memory = r.memory; r.whole() {
			s.count = r.gpus
		}
	}
	named := gpusIn(pod.Annotations)
	if len(named) > 0 {
		s.indexes = parseIndexes(strings.Join(named, ","))
	}
	unknown := slices.Equal(s.indexes, []int{everyGPU})
	if s.memory == 0 && s.count == 0 && !unknown {
		s.count = int64(len(named)) // the pod only names them
	}
	s.foreign = unknown && s.memory == 0 || slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		for name := range c.Resources.Limits {
			if wholeGPU(name) {
				return true
			}
		}
		return false
	})
	return s
}

// gpusIn returns the GPUs that annotations name, by index or in any other way, in order and without
// duplicates.
func gpusIn(annotations map[string]string) (named []string) {
	for key, value := range annotations {
		devices := strings.HasPrefix(key, containerKey) && strings.HasSuffix(key, devicesSuffix)
		if !devices && !cdi(key) {
			continue
		}
		for item := range fields.List(value, ",") {
			kind, device, isCDI := strings.Cut(item, "=")
			switch {
			case !isCDI && devices && item != "":
				named = append(named, item)
			case isCDI && strings.HasSuffix(kind, "nvidia.com/gpu") && kind != "management.nvidia.com/gpu":
				named = append(named, device)
			}
		}
	}
	slices.Sort(named)
	return slices.Compact(named)
}

func cdi(key string) bool { return key == cdiKey || strings.HasPrefix(key, cdiKey+"/") }
