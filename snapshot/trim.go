package snapshot

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lastApplied is kubectl's copy of the whole object, including the environment.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// maxLastApplied is how long lastApplied of a pod may be. The API server accepts annotations of 256
// KiB in all: with those of a pod of MaxPod bytes, this leaves 96 KiB for those that a Binding
// adds, which must be added.
const maxLastApplied = 96 << 10

// TrimPod removes, in place, what no placement can depend on, including every value that may be a
// secret: managed fields, environment, commands, probes, lifecycle hooks, volume mounts, the
// contents of most volumes, and most of the status. Of the status it keeps the phase, the start
// time, the nominated node, the names of its ResourceClaims, the conditions other than steps on the
// way to Ready, and, while the pod is resized, its resources. It also removes ephemeral containers,
// which kube-scheduler does not count either. A pod to whose annotations a Binding could not add
// any becomes larger than MaxPod.
func TrimPod(pod *corev1.Pod) {
	full := len(pod.Annotations[lastApplied]) > maxLastApplied
	trimMeta(&pod.ObjectMeta)
	if full {
		pod.Annotations[lastApplied] = strings.Repeat(".", maxLastApplied+1) // not its value, which may have secrets
	}
	trimContainers(pod.Spec.InitContainers)
	trimContainers(pod.Spec.Containers)
	pod.Spec.EphemeralContainers = nil
	pod.Spec.DNSConfig = nil
	pod.Spec.HostAliases = nil
	pod.Spec.ReadinessGates = nil
	pod.Spec.SecurityContext = nil
	pod.Spec.EvictionResponders = nil
	pod.Spec.ImagePullSecrets = nil
	pod.Spec.Volumes = trimmedVolumes(pod.Spec.Volumes)
	var kept corev1.PodStatus
	if isResized(pod) {
		kept = resourceStatus(&pod.Status)
	}
	kept.Phase = pod.Status.Phase
	kept.Conditions = lasting(pod.Status.Conditions)
	kept.NominatedNodeName = pod.Status.NominatedNodeName
	kept.StartTime = pod.Status.StartTime
	kept.ResourceClaimStatuses = pod.Status.ResourceClaimStatuses
	pod.Status = kept
}

// TrimmedPod returns the pod as TrimPod leaves it. The pod, which others may use, is not changed;
// what is kept is shared with it.
func TrimmedPod(pod *corev1.Pod) *corev1.Pod {
	trimmed := new(*pod)
	copyMeta(&trimmed.ObjectMeta)
	trimmed.Spec.InitContainers = slices.Clone(pod.Spec.InitContainers)
	trimmed.Spec.Containers = slices.Clone(pod.Spec.Containers)
	trimmed.Status.Conditions = slices.Clone(pod.Status.Conditions)
	TrimPod(trimmed)
	return trimmed
}

// TrimmedNode returns the node as TrimNode leaves it. The node, which others may use, is not
// changed; what is kept is shared with it.
func TrimmedNode(node *corev1.Node) *corev1.Node {
	trimmed := new(*node)
	copyMeta(&trimmed.ObjectMeta)
	trimmed.Status.Conditions = slices.Clone(node.Status.Conditions)
	trimmed.Status.Images = slices.Clone(node.Status.Images)
	for i := range trimmed.Status.Images {
		trimmed.Status.Images[i].Names = slices.Clone(trimmed.Status.Images[i].Names)
	}
	TrimNode(trimmed)
	return trimmed
}

// copyMeta copies what trimMeta writes to.
func copyMeta(meta *metav1.ObjectMeta) {
	if _, has := meta.Annotations[lastApplied]; has {
		meta.Annotations = maps.Clone(meta.Annotations)
	}
}

// TrimNode removes, in place, what no placement can depend on: managed fields, heartbeat times,
// addresses other than InternalIPs, volumes in use and the kubelet's own configuration status.
// Image names, which most nodes share, are interned.
func TrimNode(node *corev1.Node) {
	trimMeta(&node.ObjectMeta)
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	for i := range node.Status.Images {
		names := node.Status.Images[i].Names
		for j := range names {
			names[j] = unique.Make(names[j]).Value()
		}
	}
	node.Status.Addresses = internalIPs(node.Status.Addresses)
	node.Status.VolumesInUse = nil
	node.Status.VolumesAttached = nil
	node.Status.Config = nil
	limitNode(node)
}

// internalIPs returns the addresses with which sources of signals may name a node: at most two, for
// both families.
func internalIPs(addresses []corev1.NodeAddress) []corev1.NodeAddress {
	var kept []corev1.NodeAddress
	for _, a := range addresses {
		ip, err := netip.ParseAddr(a.Address)
		if a.Type == corev1.NodeInternalIP && err == nil && ip.Zone() == "" && len(kept) < 2 {
			kept = append(kept, a)
		}
	}
	return kept
}

// MaxNode is how much memory a trimmed node takes, in bytes, by [SizeOf]: many times that of usual
// nodes without their images.
const MaxNode = 32 << 10

// limitNode removes, in place, what a node has beyond MaxNode: the smallest images, and then the
// longest annotations and labels. The kubelet lists the largest images first.
func limitNode(node *corev1.Node) {
	over := SizeOf(node) - MaxNode
	for images := &node.Status.Images; over > 0 && len(*images) > 0; *images = (*images)[:len(*images)-1] {
		over -= SizeOf((*images)[len(*images)-1])
	}
	limitTexts(over, &node.Annotations, &node.Labels)
}

// limitTexts removes the longest entries of the maps, until they are fewer by this many bytes. It
// replaces the maps, because others may use them.
func limitTexts(over int64, all ...*map[string]string) (removed bool) {
	if over <= 0 {
		return false
	}
	type entry struct {
		of     map[string]string
		key    string
		length int
	}
	var longest []entry
	for _, texts := range all {
		*texts = maps.Clone(*texts)
		for key, value := range *texts {
			longest = append(longest, entry{*texts, key, len(key) + len(value)})
		}
	}
	slices.SortFunc(longest, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.length, a.length), cmp.Compare(a.key, b.key))
	})
	for _, e := range longest {
		if over <= 0 {
			break
		}
		over -= SizeOf(map[string]string{e.key: e.of[e.key]}) - SizeOf(map[string]string(nil))
		delete(e.of, e.key)
	}
	return true
}

func trimMeta(meta *metav1.ObjectMeta) {
	meta.ManagedFields = nil
	delete(meta.Annotations, lastApplied)
}

func trimContainers(containers []corev1.Container) {
	for i := range containers {
		c := &containers[i]
		containers[i] = corev1.Container{
			Name:          c.Name,
			Image:         unique.Make(c.Image).Value(),
			Ports:         c.Ports,
			Resources:     c.Resources,
			RestartPolicy: c.RestartPolicy,
		}
	}
}

// lasting drops the kubelet's steps on the way to Ready, and the probe times. The result has no
// spare capacity.
func lasting(conditions []corev1.PodCondition) []corev1.PodCondition {
	kept := slices.DeleteFunc(conditions, func(c corev1.PodCondition) bool {
		switch c.Type {
		case corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady:
			return true
		}
		return false
	})
	if len(kept) == 0 {
		return nil
	}
	for i := range kept {
		kept[i].LastProbeTime = metav1.Time{}
	}
	return append(make([]corev1.PodCondition, 0, len(kept)), kept...)
}

// tokenVolume is the prefix of the name of the volume that the API server adds to most pods.
const tokenVolume = "kube-api-access-"

// trimmedVolumes returns all volumes, each with its name and the type of its source. A source of a
// type on which the node can depend is kept, any other is empty. The random end of the name of the
// token's volume is removed, so that pods of one template share memory.
func trimmedVolumes(volumes []corev1.Volume) []corev1.Volume {
	if len(volumes) == 0 {
		return nil
	}
	trimmed := make([]corev1.Volume, len(volumes))
	for i := range volumes {
		v, kept := &volumes[i], &trimmed[i]
		kept.Name = v.Name
		if v.Projected != nil && strings.HasPrefix(v.Name, tokenVolume) {
			kept.Name = tokenVolume
		}
		from, to := reflect.ValueOf(&v.VolumeSource).Elem(), reflect.ValueOf(&kept.VolumeSource).Elem()
		for f := range from.NumField() {
			if !from.Field(f).IsNil() {
				to.Field(f).Set(reflect.New(from.Field(f).Type().Elem()))
			}
		}
		kept.HostPath, kept.EmptyDir, kept.NFS, kept.CSI = v.HostPath, v.EmptyDir, v.NFS, v.CSI
		kept.PersistentVolumeClaim, kept.Ephemeral, kept.Image = v.PersistentVolumeClaim, v.Ephemeral, v.Image
	}
	return trimmed
}
