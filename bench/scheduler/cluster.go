package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// cluster is a control plane with nodes and running pods.
type cluster struct {
	*stage.Stage
	nodes   int
	gpus    bool // nodes have GPUs
	client  kubernetes.Interface
	ledgers dynamic.ResourceInterface
}

// running is how many pods each node has from the beginning.
const running = 2

// creators is how many requests are under way at a time.
const creators = 32

func startCluster(ctx context.Context, o *options, nodes int, gpus bool, progress io.Writer) (_ *cluster, err error) {
	began := time.Now()
	c := &cluster{nodes: nodes, gpus: gpus}
	c.Stage, err = stage.Set(ctx, stage.Options{Outboard: o.outboard, ControlPlane: controlplane.Options{
		// The pods of an arm are deleted before the next one begins.
		APIServerArgs: []string{"--delete-collection-workers=16"},
	}})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := c.Grant(ctx, "plugin.yaml", "system:kube-scheduler"); err != nil { // for arms with allocations
		return nil, err
	}
	config := rest.CopyConfig(c.AdminConfig())
	config.ContentType = runtime.ContentTypeProtobuf // costs this process, which shares the machine, less than JSON
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	custom, err := dynamic.NewForConfig(c.AdminConfig())
	if err != nil {
		return nil, err
	}
	c.ledgers = custom.Resource(ledger.Resource)
	if err := c.lengthenQueues(ctx); err != nil {
		return nil, err
	}
	all := make([]*corev1.Node, nodes)
	for i := range all {
		all[i] = newNode(i)
		if gpus {
			addGPUs(all[i], i)
		}
	}
	if err := controlplane.CreateNodes(ctx, c.client, all...); err != nil {
		return nil, err
	}
	if err := c.createPods(ctx, nodes*running, func(i int) *corev1.Pod { return newRunningPod(i, nodes) }); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "%d nodes and %d running pods are created after %.0f s\n", nodes, nodes*running, time.Since(began).Seconds())
	return c, nil
}

// waits is the part of kube-scheduler's configuration that makes it wait for its lease. It renews the lease once a second.
const waits = "leaderElection: {leaderElect: true, leaseDuration: 10m, renewDeadline: 5m, retryPeriod: 1s}\n"

// lease is the one that kube-scheduler needs.
var lease = metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-scheduler"}

// holdLease gives the lease to this process, whoever has it.
func (c *cluster) holdLease(ctx context.Context) error {
	if err := c.releaseLease(ctx); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	now := metav1.NowMicro()
	_, err := c.client.CoordinationV1().Leases(lease.Namespace).Create(ctx, &coordinationv1.Lease{ObjectMeta: lease, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("bench-scheduler"), LeaseDurationSeconds: new(int32(time.Hour.Seconds())), AcquireTime: &now, RenewTime: &now,
	}}, metav1.CreateOptions{})
	return err
}

// releaseLease lets the first kube-scheduler that asks have the lease.
func (c *cluster) releaseLease(ctx context.Context) error {
	return c.client.CoordinationV1().Leases(lease.Namespace).Delete(ctx, lease.Name, metav1.DeleteOptions{})
}

// queued is how many requests of kube-scheduler may wait in each queue of the API server.
const queued = 10000

// lengthenQueues makes the API server reject no request of kube-scheduler. Of an arm that schedules pods faster than they are bound, it
// would reject Bindings because its queues are full, and kube-scheduler repeats a rejected request after a second, in which the machine
// is idle.
func (c *cluster) lengthenQueues(ctx context.Context) error {
	levels := c.client.FlowcontrolV1().PriorityLevelConfigurations()
	level, err := levels.Get(ctx, "workload-high", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("the API server's priority level of kube-scheduler: %w", err)
	}
	metav1.SetMetaDataAnnotation(&level.ObjectMeta, flowcontrolv1.AutoUpdateAnnotationKey, "false") // otherwise the API server restores it
	level.Spec.Limited.LimitResponse.Queuing.QueueLengthLimit = queued
	_, err = levels.Update(ctx, level, metav1.UpdateOptions{})
	return err
}

// selectPods has a Service select the pods of arms, or none.
func (c *cluster) selectPods(ctx context.Context, selected bool) error {
	services := c.client.CoreV1().Services(metav1.NamespaceDefault)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "bench"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "bench"}, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	var err error
	if selected {
		if _, err = services.Create(ctx, service, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			return nil
		}
	} else if err = services.Delete(ctx, service.Name, metav1.DeleteOptions{}); apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// spread sets where the pods are that an arm has placed.
func (c *cluster) spread(ctx context.Context, r *result) error {
	pods, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: measured})
	if err != nil {
		return err
	}
	on, in := map[string]int{}, make([]int, nodeZones)
	for i := range pods.Items {
		var node int
		if name := pods.Items[i].Spec.NodeName; name == "" {
			continue
		} else if _, err := fmt.Sscanf(name, nodePattern, &node); err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
		name := pods.Items[i].Spec.NodeName
		on[name]++
		in[node%nodeZones]++
		r.MostOnOne = max(r.MostOnOne, on[name])
	}
	r.NodesUsed, r.FewestInZone, r.MostInZone = len(on), slices.Min(in), slices.Max(in)
	return nil
}

func (c *cluster) createPods(ctx context.Context, count int, pod func(i int) *corev1.Pod) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := range count {
		group.Go(func() error {
			p := pod(i)
			if _, err := c.client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create pod %s: %w", p.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// measured selects the pods that arms place.
const measured = "app=bench"

// clear deletes the pods that an arm has placed, and the events about them, and returns when they are gone.
func (c *cluster) clear(ctx context.Context) error {
	pods := c.client.CoreV1().Pods(metav1.NamespaceDefault)
	for {
		err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{LabelSelector: measured})
		if err != nil {
			return fmt.Errorf("delete pods: %w", err)
		}
		left, err := pods.List(ctx, metav1.ListOptions{LabelSelector: measured, Limit: 1})
		if err != nil {
			return err
		}
		if len(left.Items) == 0 {
			break
		}
	}
	events := c.client.EventsV1().Events(metav1.NamespaceDefault)
	if err := events.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete events: %w", err)
	}
	// Otherwise the next arm with allocations releases those of the deleted pods while it is measured.
	if err := c.ledgers.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete ledgers: %w", err)
	}
	return nil
}

const (
	nodeImages  = 48
	nodeZones   = 3
	nodePattern = "node-%05d"
)

// newNode is a node like those of cloud providers: about 10 KB with its images, labels, conditions and addresses.
func newNode(i int) *corev1.Node {
	zone := fmt.Sprintf("eu-central-1%c", 'a'+rune(i%nodeZones))
	spec := controlplane.NodeSpec{
		Name: nodeName(i), CPU: "32", Memory: "128Gi",
		Resources:   map[string]string{"ephemeral-storage": "200Gi", "hugepages-1Gi": "0", "hugepages-2Mi": "0"},
		Allocatable: map[string]string{"cpu": "31750m", "memory": "124Gi", "ephemeral-storage": "180Gi"},
		Labels: map[string]string{
			"topology.kubernetes.io/region": "eu-central-1", "topology.kubernetes.io/zone": zone,
			"failure-domain.beta.kubernetes.io/region": "eu-central-1", "failure-domain.beta.kubernetes.io/zone": zone,
			"node.kubernetes.io/instance-type": "m6i.8xlarge", "beta.kubernetes.io/instance-type": "m6i.8xlarge",
			"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "k8s.io/cloud-provider-aws": "3c8d1c2f9f4b7a6e",
			"eks.amazonaws.com/nodegroup": fmt.Sprint("workers-", i%7), "eks.amazonaws.com/capacityType": "ON_DEMAND",
			"eks.amazonaws.com/nodegroup-image": "ami-0f1e2d3c4b5a69788", "example.com/rack": fmt.Sprint("rack-", i/40),
		},
		Annotations: map[string]string{
			"node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true",
			"csi.volume.kubernetes.io/nodeid": fmt.Sprintf(`{"ebs.csi.aws.com":"i-%017x","efs.csi.aws.com":"i-%017x"}`, i, i),
		},
	}
	node := spec.Node()
	node.Spec.ProviderID = fmt.Sprintf("aws:///%s/i-%017x", zone, i)
	node.Spec.PodCIDR = fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)
	node.Status.Conditions = append(conditions(), node.Status.Conditions...)
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.200.%d.%d", i/256, i%256)},
		{Type: corev1.NodeHostName, Address: node.Name}, {Type: corev1.NodeInternalDNS, Address: node.Name},
	}
	node.Status.NodeInfo = corev1.NodeSystemInfo{
		MachineID: fmt.Sprintf("%032x", i), SystemUUID: fmt.Sprintf("ec2%029x", i), BootID: fmt.Sprintf("%032x", ^uint32(i)),
		KernelVersion: "6.12.40-64.114.amzn2023.x86_64", OSImage: "Amazon Linux 2023.9.20251110", ContainerRuntimeVersion: "containerd://2.1.4",
		KubeletVersion: "v1.37.0", OperatingSystem: "linux", Architecture: "amd64",
	}
	node.Status.Images = imagesOf(i)
	return node
}

func nodeName(i int) string { return fmt.Sprintf(nodePattern, i) }

// gpuMemory and gpuCount are the resources of nodes with GPUs that pods share.
const gpuMemory, gpuCount = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"

// addGPUs gives the node GPUs, of one of three models.
func addGPUs(node *corev1.Node, i int) {
	model := []struct {
		name         string
		gpus, memory int64
	}{{"Tesla-T4", 8, 16}, {"NVIDIA-A10", 4, 24}, {"Tesla-V100", 8, 32}}[i/nodeZones%3]
	node.Labels["nvidia.com/gpu.product"] = model.name
	for _, of := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		of[gpuMemory], of[gpuCount] = *resource.NewQuantity(model.gpus*model.memory, resource.DecimalSI), *resource.NewQuantity(model.gpus, resource.DecimalSI)
	}
}

func conditions() []corev1.NodeCondition {
	var all []corev1.NodeCondition
	now := metav1.Now()
	for _, c := range []struct{ kind, reason, message string }{
		{"MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
		{"DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
		{"PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
	} {
		all = append(all, corev1.NodeCondition{
			Type: corev1.NodeConditionType(c.kind), Status: corev1.ConditionFalse, LastHeartbeatTime: now, LastTransitionTime: now,
			Reason: c.reason, Message: c.message,
		})
	}
	return all
}

// image returns the names of the image that pods of a template use: by digest and by tag.
func image(k int) (byDigest, byTag string) {
	repository := fmt.Sprintf("registry.example.com/team-%d/service-%02d", k%5, k)
	return fmt.Sprintf("%s@sha256:%064x", repository, 7919*(k+1)), fmt.Sprintf("%s:v1.%d.%d", repository, k, 3*k)
}

// imagesOf returns half of all images, others on each node.
func imagesOf(i int) []corev1.ContainerImage {
	random := rand.New(rand.NewPCG(1, uint64(i)))
	which := random.Perm(2 * nodeImages)[:nodeImages]
	slices.Sort(which)
	images := make([]corev1.ContainerImage, 0, nodeImages)
	for _, k := range which {
		byDigest, byTag := image(k)
		images = append(images, corev1.ContainerImage{Names: []string{byDigest, byTag}, SizeBytes: int64(100+10*k) << 20})
	}
	return images
}

// newPod is pod i of an arm, made from one of the templates as a ReplicaSet makes pods.
func newPod(i, templates int, kind podKind) *corev1.Pod {
	t := i % templates
	_, tag := image(t % (2 * nodeImages))
	hash := fmt.Sprintf("%010x", 104729*(t+1))
	p := controlplane.PodSpec{
		Name: fmt.Sprintf("bench-%s-%05d", hash, i), Image: tag,
		CPU: fmt.Sprintf("%dm", 50+t), Memory: fmt.Sprintf("%dMi", 64+t),
		Labels: map[string]string{"app": "bench", "pod-template-hash": hash, "team": fmt.Sprint("team-", t%5)},
	}.Pod()
	finish(p, hash)
	switch kind {
	case apart:
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "bench"}}},
		}}}
	case restricted:
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{nodeName(0)}},
			}}},
		}}}
	case sharing:
		limits := corev1.ResourceList{gpuMemory: *resource.NewQuantity(int64(2+t%11), resource.DecimalSI)}
		c := &p.Spec.Containers[0].Resources
		c.Limits = limits
		maps.Copy(c.Requests, limits)
	}
	return p
}

// newRunningPod is a pod that is on its node from the beginning.
func newRunningPod(i, nodes int) *corev1.Pod {
	t := i % 200
	_, tag := image(t % (2 * nodeImages))
	hash := fmt.Sprintf("%010x", 15485863*(t+1))
	p := controlplane.PodSpec{
		Name: fmt.Sprintf("service-%s-%05d", hash, i), Image: tag, CPU: "500m", Memory: "1Gi", NodeName: nodeName(i % nodes),
		Labels: map[string]string{"app": fmt.Sprint("service-", t), "pod-template-hash": hash},
	}.Pod()
	finish(p, hash)
	return p
}

// finish adds what most pods have beside the fields that scheduling depends on.
func finish(p *corev1.Pod, hash string) {
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "bench-" + hash, UID: "0d3c2a1e-1111-2222-3333-444455556666",
		Controller: new(true), BlockOwnerDeletion: new(true),
	}}
	c := &p.Spec.Containers[0]
	c.Ports = []corev1.ContainerPort{{ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}
	c.Env = []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
	}}}
}
