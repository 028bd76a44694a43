package wire_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// These values describe a worker node of a cloud cluster: with its managedFields such a Node takes 11 to 12 KB of JSON, and the
// Pod about 6 KB.
const (
	imagesPerNode = 32
	podContainers = 4
)

var epoch = metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

func nodeName(i int) string {
	return fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i>>16&255, i>>8&255, i&255)
}

// workerNode is a Node as kube-scheduler sends it: with all fields that the kubelet and the cloud controller write, including
// managedFields.
func workerNode(i int) corev1.Node {
	name := nodeName(i)
	quantities := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("15890m"),
		corev1.ResourceMemory:           resource.MustParse("62105240Ki"),
		corev1.ResourceEphemeralStorage: resource.MustParse("95551679124"),
		corev1.ResourcePods:             resource.MustParse("58"),
		"hugepages-1Gi":                 resource.MustParse("0"),
		"hugepages-2Mi":                 resource.MustParse("0"),
		"nvidia.com/gpu":                resource.MustParse("8"),
	}
	node := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			UID:               types.UID(fmt.Sprintf("5d2f6a3e-7c41-4a0b-9e55-%012d", i)),
			ResourceVersion:   fmt.Sprint(981234567 + i),
			CreationTimestamp: epoch,
			Labels: map[string]string{
				"beta.kubernetes.io/arch":                "amd64",
				"beta.kubernetes.io/instance-type":       "g5.4xlarge",
				"beta.kubernetes.io/os":                  "linux",
				"eks.amazonaws.com/nodegroup":            "gpu-workers-a",
				"failure-domain.beta.kubernetes.io/zone": "eu-central-1a",
				"kubernetes.io/arch":                     "amd64",
				"kubernetes.io/hostname":                 name,
				"kubernetes.io/os":                       "linux",
				"node.kubernetes.io/instance-type":       "g5.4xlarge",
				"topology.ebs.csi.aws.com/zone":          "eu-central-1a",
				"topology.kubernetes.io/region":          "eu-central-1",
				"topology.kubernetes.io/zone":            "eu-central-1a",
			},
			Annotations: map[string]string{
				"csi.volume.kubernetes.io/nodeid":                        `{"ebs.csi.aws.com":"i-0f3c2d1b` + fmt.Sprintf("%08x", i) + `","efs.csi.aws.com":"i-0f3c2d1b"}`,
				"node.alpha.kubernetes.io/ttl":                           "15",
				"volumes.kubernetes.io/controller-managed-attach-detach": "true",
			},
			ManagedFields: []metav1.ManagedFieldsEntry{
				managed("kubelet", "", `{"f:metadata":{"f:annotations":{".":{},"f:volumes.kubernetes.io/controller-managed-attach-detach":{}},"f:labels":{".":{},"f:beta.kubernetes.io/arch":{},"f:beta.kubernetes.io/os":{},"f:eks.amazonaws.com/nodegroup":{},"f:kubernetes.io/arch":{},"f:kubernetes.io/hostname":{},"f:kubernetes.io/os":{}}},"f:spec":{"f:providerID":{}}}`),
				managed("aws-cloud-controller-manager", "", `{"f:metadata":{"f:labels":{"f:beta.kubernetes.io/instance-type":{},"f:failure-domain.beta.kubernetes.io/zone":{},"f:node.kubernetes.io/instance-type":{},"f:topology.kubernetes.io/region":{},"f:topology.kubernetes.io/zone":{}}}}`),
				managed("aws-cloud-controller-manager", "status", `{"f:status":{"f:addresses":{".":{},"k:{\"type\":\"ExternalDNS\"}":{".":{},"f:address":{},"f:type":{}},"k:{\"type\":\"Hostname\"}":{".":{},"f:address":{},"f:type":{}},"k:{\"type\":\"InternalDNS\"}":{".":{},"f:address":{},"f:type":{}},"k:{\"type\":\"InternalIP\"}":{".":{},"f:address":{},"f:type":{}}}}}`),
				managed("kube-controller-manager", "", `{"f:metadata":{"f:annotations":{"f:node.alpha.kubernetes.io/ttl":{}}}}`),
				managed("kubelet", "status", `{"f:metadata":{"f:annotations":{"f:csi.volume.kubernetes.io/nodeid":{}},"f:labels":{"f:topology.ebs.csi.aws.com/zone":{}}},"f:status":{"f:allocatable":{"f:nvidia.com/gpu":{}},"f:capacity":{"f:nvidia.com/gpu":{}},"f:conditions":{"k:{\"type\":\"DiskPressure\"}":{"f:lastHeartbeatTime":{}},"k:{\"type\":\"MemoryPressure\"}":{"f:lastHeartbeatTime":{}},"k:{\"type\":\"PIDPressure\"}":{"f:lastHeartbeatTime":{}},"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{},"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":{}}},"f:images":{}}}`),
			},
		},
		Spec: corev1.NodeSpec{ProviderID: fmt.Sprintf("aws:///eu-central-1a/i-0f3c2d1b%08x", i)},
		Status: corev1.NodeStatus{
			Capacity:    quantities,
			Allocatable: quantities,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)},
				{Type: corev1.NodeInternalDNS, Address: name},
				{Type: corev1.NodeHostName, Address: name},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: "ec2f6a3e7c414a0b9e55bd0c1ac3de10", SystemUUID: "ec2f6a3e-7c41-4a0b-9e55-bd0c1ac3de10", BootID: "8f0d9f0c-33a6-4f4e-9a4b-2f3ad1a0c7f1",
				KernelVersion: "6.1.127-135.201.amzn2023.x86_64", OSImage: "Amazon Linux 2023.6.20250203", ContainerRuntimeVersion: "containerd://1.7.25",
				KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64",
			},
		},
	}
	for _, c := range []struct {
		kind            corev1.NodeConditionType
		reason, message string
	}{
		{corev1.NodeMemoryPressure, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
		{corev1.NodeDiskPressure, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
		{corev1.NodePIDPressure, "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
		{corev1.NodeReady, "KubeletReady", "kubelet is posting ready status"},
	} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: c.kind, Status: corev1.ConditionFalse, LastHeartbeatTime: epoch, LastTransitionTime: epoch, Reason: c.reason, Message: c.message,
		})
	}
	for k := range imagesPerNode {
		digest := fmt.Sprintf("%064x", uint64(i*imagesPerNode+k)*2654435761)
		repository := fmt.Sprintf("registry.example.com/platform/team-%d/service-%d", k%7, k)
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names:     []string{repository + "@sha256:" + digest, repository + ":v1.2" + fmt.Sprint(k)},
			SizeBytes: int64(10_000_000 + k*977_531),
		})
	}
	return node
}

func managed(manager, subresource, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &epoch,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields), Subresource: subresource,
	}
}

// workerPod is a Pod of a Deployment behind a service mesh, without
// managedFields, as kube-scheduler sends it.
func workerPod() *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "inference-7d9c5b6f4-x2x8k", GenerateName: "inference-7d9c5b6f4-", Namespace: "ml-serving",
			UID: "0b7e3c1a-5f0e-4d9b-8c55-7a1a5f0e4d9b", ResourceVersion: "981299113", CreationTimestamp: epoch,
			Labels:          map[string]string{"app": "inference", "pod-template-hash": "7d9c5b6f4", "team": "search"},
			Annotations:     map[string]string{"prometheus.io/scrape": "true", "sidecar.istio.io/status": `{"initContainers":["istio-init"],"containers":["istio-proxy"],"volumes":["workload-socket"]}`},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "inference-7d9c5b6f4", UID: "a1b2c3d4-0000-4000-8000-0123456789ab"}},
		},
		Spec: corev1.PodSpec{
			SchedulerName: "outboard", RestartPolicy: corev1.RestartPolicyAlways, ServiceAccountName: "inference",
			NodeSelector: map[string]string{"kubernetes.io/os": "linux"},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable},
	}
	for k := range podContainers {
		c := corev1.Container{
			Name: fmt.Sprintf("container-%d", k), Image: "registry.example.com/platform/inference:v1.20.3",
			Command: []string{"/bin/sh", "-c", "exec /opt/app/bin/server --flag \"quoted\" 2>&1"},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("2Gi")},
				Limits:   corev1.ResourceList{"aliyun.com/gpu-mem": resource.MustParse("8")},
			},
			TerminationMessagePath: "/dev/termination-log", ImagePullPolicy: corev1.PullIfNotPresent,
		}
		for e := range 14 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_NUMBER_%02d", e), Value: fmt.Sprintf("value-of-setting-%02d", e)})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

// tester is the common part of *testing.T and *rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func marshal(tb tester, v any) []byte {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// namesBody is kube-scheduler's body with nodeCacheCapable: true.
func namesBody(tb testing.TB, nodes int) []byte {
	names := make([]string, nodes)
	for i := range names {
		names[i] = nodeName(i)
	}
	return marshal(tb, &extenderv1.ExtenderArgs{Pod: workerPod(), NodeNames: &names})
}

// nodesBody is kube-scheduler's body with nodeCacheCapable: false.
func nodesBody(tb testing.TB, nodes int) []byte {
	list := &corev1.NodeList{}
	for i := range nodes {
		list.Items = append(list.Items, workerNode(i))
	}
	return marshal(tb, &extenderv1.ExtenderArgs{Pod: workerPod(), Nodes: list})
}
