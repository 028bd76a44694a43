package cluster

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
)

func quantity(text string) resource.Quantity { return resource.MustParse(text) }

var created = metav1.NewTime(time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC))

// uid returns a UID of the usual form.
func uid(kind string, i int) types.UID {
	return types.UID(fmt.Sprintf("%08x-%04x-4000-8000-%s", i, i%65536, (kind + "000000000000")[:12]))
}

// exampleNode is a node as the kubelet of a large cloud reports it: about 11 KB of JSON, with 50 of the cluster's images.
func exampleNode(i int) *corev1.Node {
	name := fmt.Sprintf("ip-10-%d-%d-%d.eu-west-1.compute.internal", i/65536, i/256%256, i%256)
	zone := fmt.Sprintf("eu-west-1%c", 'a'+i%3)
	amounts := func(cpu string, memory int) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU:              quantity(cpu),
			corev1.ResourceMemory:           quantity(fmt.Sprintf("%dKi", memory-i%97)),
			corev1.ResourceEphemeralStorage: quantity("104845292Ki"),
			corev1.ResourcePods:             quantity("110"),
			"hugepages-1Gi":                 quantity("0"),
			"hugepages-2Mi":                 quantity("0"),
			"nvidia.com/gpu":                quantity("8"),
		}
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: uid("node", i), ResourceVersion: fmt.Sprint(1000000 + i), CreationTimestamp: created,
			Labels: map[string]string{
				"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
				"beta.kubernetes.io/instance-type": "p4d.24xlarge", "node.kubernetes.io/instance-type": "p4d.24xlarge",
				"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name,
				"failure-domain.beta.kubernetes.io/region": "eu-west-1", "failure-domain.beta.kubernetes.io/zone": zone,
				"topology.kubernetes.io/region": "eu-west-1", "topology.kubernetes.io/zone": zone,
				"topology.ebs.csi.aws.com/zone": zone, "topology.k8s.aws/zone-id": "euw1-az1",
				"eks.amazonaws.com/nodegroup": fmt.Sprintf("gpu-%d", i%8), "eks.amazonaws.com/capacityType": "ON_DEMAND",
				"eks.amazonaws.com/nodegroup-image": "ami-0123456789abcdef0", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
				"nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "40960", "nvidia.com/mig.capable": "true",
				"feature.node.kubernetes.io/cpu-model.vendor_id": "Intel", "feature.node.kubernetes.io/kernel-version.major": "5",
			},
			Annotations: map[string]string{
				"alpha.kubernetes.io/provided-node-ip":                   fmt.Sprintf("10.%d.%d.%d", i/65536, i/256%256, i%256),
				"csi.volume.kubernetes.io/nodeid":                        fmt.Sprintf(`{"ebs.csi.aws.com":"i-%017x"}`, i),
				"node.alpha.kubernetes.io/ttl":                           "0",
				"volumes.kubernetes.io/controller-managed-attach-detach": "true",
			},
		},
		Spec: corev1.NodeSpec{
			ProviderID: fmt.Sprintf("aws:///%s/i-%017x", zone, i),
			Taints:     []corev1.Taint{{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}},
		},
		Status: corev1.NodeStatus{
			Capacity:    amounts("96", 1176329536),
			Allocatable: amounts("95690m", 1167929536),
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: fmt.Sprintf("ec2%029x", i), SystemUUID: string(uid("system", i)), BootID: string(uid("boot", i)),
				KernelVersion: "5.10.225-213.878.amzn2.x86_64", OSImage: "Amazon Linux 2", ContainerRuntimeVersion: "containerd://1.7.22",
				KubeletVersion: "v1.36.3-eks-a737599", OperatingSystem: "linux", Architecture: "amd64",
			},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.%d.%d.%d", i/65536, i/256%256, i%256)},
				{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalDNS, Address: name},
			},
		},
	}
	for _, condition := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: condition, Status: corev1.ConditionFalse, LastHeartbeatTime: created,
			LastTransitionTime: metav1.NewTime(created.Add(time.Duration(i) * time.Second)),
			Reason:             "KubeletHasSufficient" + string(condition), Message: "kubelet has sufficient memory available",
		})
	}
	for k := range 50 {
		image := (i*7 + k*11) % 400 // of the cluster's images
		repository := fmt.Sprintf("602401143452.dkr.ecr.eu-west-1.amazonaws.com/team-%d/service-%d", image%20, image)
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%064x", repository, image), fmt.Sprintf("%s:v1.%d.0", repository, image)},
			SizeBytes: int64(image) << 20,
		})
	}
	node.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubelet", Operation: "Update", APIVersion: "v1", Time: &created, FieldsType: "FieldsV1", FieldsV1: fieldsV1(1200)},
		{Manager: "aws-cloud-controller-manager", Operation: "Update", APIVersion: "v1", Time: &created, FieldsType: "FieldsV1", FieldsV1: fieldsV1(700)},
	}
	return node
}

// examplePod is a running pod of one of many workloads, with a sidecar: about 7 KB of JSON. Only its name differs from other
// pods with the same i.
func examplePod(i int, name string) *corev1.Pod {
	app := i % 1500 // 20 pods of each workload
	workload := fmt.Sprintf("service-%d", app)
	env := func() (vars []corev1.EnvVar) {
		for k := range 12 {
			vars = append(vars, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", k), Value: fmt.Sprintf("value of setting %d of %s", k, workload)})
		}
		return vars
	}
	container := func(name, image, cpu, memory string) corev1.Container {
		return corev1.Container{
			Name: name, Image: image, Env: env(), Args: []string{"--config=/etc/config.yaml", "--verbose"},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: quantity(cpu), corev1.ResourceMemory: quantity(memory)},
				Limits:   corev1.ResourceList{corev1.ResourceCPU: quantity(cpu), corev1.ResourceMemory: quantity(memory)},
			},
			VolumeMounts:    []corev1.VolumeMount{{Name: "kube-api-access-" + name, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
			LivenessProbe:   &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Scheme: "HTTP"}}, PeriodSeconds: 10},
			ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File",
		}
	}
	yes := true
	seconds := int64(300)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", app%20), Name: name, GenerateName: workload + "-7d4b9c6f58-",
			UID: uid("pod", i), ResourceVersion: fmt.Sprint(2000000 + i), CreationTimestamp: created,
			Labels: map[string]string{
				"app.kubernetes.io/name": workload, "app.kubernetes.io/instance": workload, "app.kubernetes.io/version": "1.2.3",
				"app.kubernetes.io/part-of": "platform", "pod-template-hash": "7d4b9c6f58", "team": fmt.Sprintf("team-%d", app%20),
			},
			Annotations: map[string]string{
				"cni.projectcalico.org/podIP": fmt.Sprintf("10.%d.%d.%d/32", i/65536, i/256%256, i%256), "prometheus.io/scrape": "true", "prometheus.io/port": "8080",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: workload + "-7d4b9c6f58", UID: uid("rs", app), Controller: &yes, BlockOwnerDeletion: &yes}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: "Update", APIVersion: "v1", Time: &created, FieldsType: "FieldsV1", FieldsV1: fieldsV1(1500)}},
		},
		Spec: corev1.PodSpec{
			NodeName: exampleNodeName(i % 5000), SchedulerName: "default-scheduler", ServiceAccountName: workload, DeprecatedServiceAccount: workload,
			RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, TerminationGracePeriodSeconds: &seconds,
			Containers: []corev1.Container{
				container("app", fmt.Sprintf("registry.example.com/%s:1.2.3", workload), "250m", "512Mi"),
				container("proxy", "registry.example.com/proxy:4.5.6", "50m", "64Mi"),
			},
			InitContainers: []corev1.Container{container("setup", "registry.example.com/setup:1", "10m", "16Mi")},
			Volumes:        []corev1.Volume{{Name: "kube-api-access-" + name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}},
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
				{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
			},
			Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
				Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "kubernetes.io/hostname", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": workload}}},
			}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &created, PodIP: "10.1.2.3", PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}}, QOSClass: corev1.PodQOSGuaranteed},
	}
	for k, condition := range []corev1.PodConditionType{"PodReadyToStartContainers", corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(created.Add(time.Duration(i%9000+k) * time.Second)),
		})
	}
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: fmt.Sprintf("%s@sha256:%064x", c.Image, app), ContainerID: fmt.Sprintf("containerd://%064x", i), Ready: true,
			State:              corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: created}},
			AllocatedResources: c.Resources.Requests.DeepCopy(), Resources: c.Resources.DeepCopy(),
		})
	}
	total := corev1.ResourceRequirements{
		Requests: resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}),
		Limits:   resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{}),
	}
	pod.Status.AllocatedResources, pod.Status.Resources = total.Requests.DeepCopy(), &total
	return pod
}

func exampleNodeName(i int) string {
	return fmt.Sprintf("ip-10-%d-%d-%d.eu-west-1.compute.internal", i/65536, i/256%256, i%256)
}

func fieldsV1(size int) *metav1.FieldsV1 {
	raw := []byte(`{"f:metadata":{`)
	for i := 0; len(raw) < size; i++ {
		raw = fmt.Appendf(raw, `"f:field-%d":{},`, i)
	}
	return metav1.NewFieldsV1(string(append(raw, `"f:last":{}}}`...)))
}
