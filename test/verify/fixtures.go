package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// fixtures are the nodes and pods of the requests: those of the caller, or imaginary
// ones.
type fixtures struct {
	pod        *corev1.Pod
	nodes      []*corev1.Node // those of the caller first, then imaginary ones
	knownNodes int            // how many of nodes are the caller's; 0: all are imaginary
	// pods are the pods on each node, by UID. nil: the caller did not say.
	pods map[string][]*corev1.Pod
}

const (
	imaginaryNamespace = "outboard-verify"
	imaginaryUID       = types.UID("outboard-verify-probe")
	imaginaryNode      = "outboard-verify-node-"
	imaginaryImage     = "registry.example/app:1"
	imaginaryVictim    = "outboard-verify-victim-"
	sampleSize         = 10 // nodes in a request that is not about size
)

// newFixtures returns what the options give, and enough imaginary nodes for the
// largest request.
func newFixtures(o Options) (*fixtures, error) {
	c := &fixtures{pod: imaginaryPod()}
	if o.Pod != nil {
		c.pod = o.Pod.DeepCopy()
	}
	// A pod as kube-scheduler has it, even if this one was read from a file.
	c.pod.Namespace = orDefault(c.pod.Namespace, metav1.NamespaceDefault)
	c.pod.UID = orDefault(c.pod.UID, imaginaryUID)
	c.pod.ManagedFields = nil
	c.pod.Spec.NodeName = ""

	names := make(map[string]bool)
	add := func(node *corev1.Node) {
		names[node.Name] = true
		c.nodes = append(c.nodes, node)
	}
	for i := range o.Nodes {
		node, err := roundTrip(&o.Nodes[i])
		if err != nil {
			return nil, fmt.Errorf("node %q: %w", o.Nodes[i].Name, err)
		}
		add(node)
	}
	c.knownNodes = len(c.nodes)
	template := imaginaryNodeObject()
	enough := slices.Max(append([]int{sampleSize}, o.Sizes...))
	templates := []*corev1.Node{template, withImages(template, c.pod)} // so that a node can be better than another
	for i := 0; len(c.nodes) < enough; i++ {
		if name := imaginaryNode + strconv.Itoa(i); !names[name] {
			add(named(templates[i%2], name))
		}
	}
	if o.Pods != nil {
		c.pods = make(map[string][]*corev1.Pod)
		for i := range o.Pods {
			c.pods[o.Pods[i].Spec.NodeName] = append(c.pods[o.Pods[i].Spec.NodeName], &o.Pods[i])
		}
	}
	return c, nil
}

// sample returns the nodes of an ordinary request.
func (c *fixtures) sample() []*corev1.Node {
	if c.knownNodes > 0 {
		return c.nodes[:min(c.knownNodes, sampleSize)]
	}
	return c.nodes[:sampleSize]
}

// victimsOn returns pods on the node to offer as victims, at most three.
func (c *fixtures) victimsOn(node string) []*corev1.Pod {
	if c.pods != nil {
		return c.pods[node][:min(3, len(c.pods[node]))]
	}
	var victims []*corev1.Pod
	for i := range 2 {
		victim := imaginaryPod()
		victim.Name = fmt.Sprintf("victim-%d-on-%s", i, node)
		victim.UID = types.UID(fmt.Sprintf("%s%d-on-%s", imaginaryVictim, i, node))
		victim.Spec.NodeName = node
		victim.Spec.Priority = new(int32)
		victims = append(victims, victim)
	}
	return victims
}

// mayBeOn reports whether a pod with this UID can be on the node. The pods of a real
// node are known only when the caller gave pods.
func (c *fixtures) mayBeOn(node, uid string) bool {
	if c.pods == nil && c.knownNodes > 0 {
		return !strings.HasPrefix(uid, imaginaryVictim) || strings.HasSuffix(uid, "-on-"+node)
	}
	on := c.pods[node]
	if c.pods == nil {
		on = c.victimsOn(node)
	}
	return slices.ContainsFunc(on, func(pod *corev1.Pod) bool { return string(pod.UID) == uid })
}

// unknownPod returns a copy of the sample pod with a new UID.
func (c *fixtures) unknownPod(i int) *corev1.Pod {
	pod := *c.pod
	pod.Name = fmt.Sprintf("%s-imaginary-%d", c.pod.Name, i)
	pod.UID = uuid.NewUUID()
	return &pod
}

// unschedulablePod returns a copy of the sample pod that fits on no node.
func (c *fixtures) unschedulablePod() *corev1.Pod {
	pod := c.pod.DeepCopy()
	pod.Name += "-unschedulable"
	pod.UID = uuid.NewUUID()
	huge := resource.MustParse("1P")
	wanted := corev1.ResourceList{corev1.ResourceCPU: huge, corev1.ResourceMemory: huge}
	for _, container := range pod.Spec.Containers {
		for name := range container.Resources.Requests {
			wanted[name] = huge
		}
		for name := range container.Resources.Limits {
			wanted[name] = huge
		}
	}
	addRequests(pod, wanted)
	pod.Spec.NodeSelector = maps.Clone(pod.Spec.NodeSelector)
	if pod.Spec.NodeSelector == nil {
		pod.Spec.NodeSelector = make(map[string]string)
	}
	pod.Spec.NodeSelector["outboard.dev/verify"] = "on-no-node"
	return pod
}

// addRequests adds the resources to the first container's requests and limits.
func addRequests(pod *corev1.Pod, resources corev1.ResourceList) {
	if len(resources) == 0 {
		return
	}
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []corev1.Container{{Name: "main", Image: imaginaryImage}}
	}
	r := &pod.Spec.Containers[0].Resources
	for _, list := range []*corev1.ResourceList{&r.Requests, &r.Limits} {
		if *list == nil {
			*list = make(corev1.ResourceList)
		}
		maps.Copy(*list, resources)
	}
}

func imaginaryPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "probe", Namespace: imaginaryNamespace, UID: imaginaryUID, ResourceVersion: "1",
			CreationTimestamp: someTime,
			Labels:            map[string]string{"app": "outboard-verify"},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "main", Image: imaginaryImage,
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{
						corev1.ResourceCPU:    resource.MustParse("100m"),
						corev1.ResourceMemory: resource.MustParse("64Mi"),
					},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}},
			}},
			Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			Tolerations: []corev1.Toleration{
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
			},
			RestartPolicy: corev1.RestartPolicyAlways,
			SchedulerName: corev1.DefaultSchedulerName,
			Priority:      new(int32(1000)),
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable},
	}
}

var someTime = metav1.NewTime(time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC))

// imaginaryNodeObject is the size of a real node (about 9 kB) and has the fields
// that libraries a few minors old do not know.
func imaginaryNodeObject() *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:                    resource.MustParse("16"),
		corev1.ResourceMemory:                 resource.MustParse("64Gi"),
		corev1.ResourceEphemeralStorage:       resource.MustParse("200Gi"),
		corev1.ResourcePods:                   resource.MustParse("110"),
		corev1.ResourceName("hugepages-2Mi"):  resource.MustParse("0"),
		corev1.ResourceName("nvidia.com/gpu"): resource.MustParse("4"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			UID: "outboard-verify-node", ResourceVersion: "1", CreationTimestamp: someTime,
			Labels: map[string]string{
				corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
				corev1.LabelTopologyZone: "zone-a", corev1.LabelTopologyRegion: "region-1",
				corev1.LabelInstanceTypeStable: "large-16",
			},
			Annotations: map[string]string{"node.alpha.kubernetes.io/ttl": "0"},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &someTime,
				FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{}}}`), Subresource: "status",
			}},
		},
		Spec: corev1.NodeSpec{
			PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24"}, ProviderID: "example:///zone-a/outboard-verify",
			Taints: []corev1.Taint{{Key: "example.com/maintenance", Value: "soon", Effect: corev1.TaintEffectPreferNoSchedule}},
		},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources,
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64",
				Swap: &corev1.NodeSwapStatus{Capacity: new(int64(1 << 30))}},
			VolumesInUse:     []corev1.UniqueVolumeName{"kubernetes.io/csi/example^volume-1"},
			RuntimeHandlers:  []corev1.NodeRuntimeHandler{{Name: "runc"}},
			Features:         &corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)},
			DeclaredFeatures: []string{"ExampleFeature"},
		},
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		status := corev1.ConditionFalse
		if kind == corev1.NodeReady {
			status = corev1.ConditionTrue
		}
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: status, LastHeartbeatTime: someTime, LastTransitionTime: someTime, Reason: "AsExpected", Message: "as expected",
		})
	}
	for i := range 36 {
		image := fmt.Sprintf("registry.example/team/an-application-with-a-long-name-%02d", i)
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names:     []string{image + fmt.Sprintf("@sha256:%064x", i), image + ":v1.2.3"},
			SizeBytes: int64(50_000_000 + i),
		})
	}
	return node
}

// withImages returns the node with the images of the pod's containers.
func withImages(template *corev1.Node, pod *corev1.Pod) *corev1.Node {
	node := *template
	node.Status.Images = slices.Clip(node.Status.Images)
	for i := range pod.Spec.Containers {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{pod.Spec.Containers[i].Image}, SizeBytes: 50_000_000})
	}
	return &node
}

// named returns the node under another name, sharing what does not depend on it.
func named(template *corev1.Node, name string) *corev1.Node {
	node := *template
	node.Name = name
	node.UID = types.UID("outboard-verify-" + name)
	node.Labels = maps.Clone(template.Labels)
	node.Labels[corev1.LabelHostname] = name
	return &node
}

// roundTrip returns the node as an extender that changes nothing sends it back.
func roundTrip(node *corev1.Node) (*corev1.Node, error) {
	data, err := json.Marshal(node)
	if err != nil {
		return nil, err
	}
	var copied corev1.Node
	return &copied, json.Unmarshal(data, &copied)
}
