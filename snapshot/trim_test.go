package snapshot_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

// keptOfPod are the fields of a pod with every field set that are still set after TrimPod. A new field of a later Kubernetes
// version fails the test until someone decides whether placement can depend on it.
const keptOfPod = `
TypeMeta
ObjectMeta.Name
ObjectMeta.GenerateName
ObjectMeta.Namespace
ObjectMeta.SelfLink
ObjectMeta.UID
ObjectMeta.ResourceVersion
ObjectMeta.Generation
ObjectMeta.CreationTimestamp
ObjectMeta.DeletionTimestamp
ObjectMeta.DeletionGracePeriodSeconds
ObjectMeta.Labels
ObjectMeta.Annotations
ObjectMeta.OwnerReferences
ObjectMeta.Finalizers
Spec.Volumes
Spec.InitContainers.Name
Spec.InitContainers.Image
Spec.InitContainers.Ports
Spec.InitContainers.Resources
Spec.InitContainers.RestartPolicy
Spec.Containers.Name
Spec.Containers.Image
Spec.Containers.Ports
Spec.Containers.Resources
Spec.Containers.RestartPolicy
Spec.RestartPolicy
Spec.TerminationGracePeriodSeconds
Spec.ActiveDeadlineSeconds
Spec.DNSPolicy
Spec.NodeSelector
Spec.ServiceAccountName
Spec.DeprecatedServiceAccount
Spec.AutomountServiceAccountToken
Spec.NodeName
Spec.HostNetwork
Spec.HostPID
Spec.HostIPC
Spec.ShareProcessNamespace
Spec.Hostname
Spec.Subdomain
Spec.Affinity
Spec.SchedulerName
Spec.Tolerations
Spec.PriorityClassName
Spec.Priority
Spec.RuntimeClassName
Spec.EnableServiceLinks
Spec.PreemptionPolicy
Spec.Overhead
Spec.TopologySpreadConstraints
Spec.SetHostnameAsFQDN
Spec.OS
Spec.HostUsers
Spec.SchedulingGates
Spec.ResourceClaims
Spec.Resources
Spec.HostnameOverride
Spec.SchedulingGroup
Status.Phase
Status.Conditions
Status.NominatedNodeName
Status.StartTime
Status.ResourceClaimStatuses
`

const keptOfNode = `
TypeMeta
ObjectMeta.Name
ObjectMeta.GenerateName
ObjectMeta.Namespace
ObjectMeta.SelfLink
ObjectMeta.UID
ObjectMeta.ResourceVersion
ObjectMeta.Generation
ObjectMeta.CreationTimestamp
ObjectMeta.DeletionTimestamp
ObjectMeta.DeletionGracePeriodSeconds
ObjectMeta.Labels
ObjectMeta.Annotations
ObjectMeta.OwnerReferences
ObjectMeta.Finalizers
Spec
Status.Capacity
Status.Allocatable
Status.Phase
Status.Conditions
Status.DaemonEndpoints
Status.NodeInfo
Status.Images
Status.RuntimeHandlers
Status.Features
Status.DeclaredFeatures
`

// open are the fields whose own fields are listed one by one.
var open = map[string]bool{
	"ObjectMeta": true, "Spec": true, "Status": true,
	"Spec.Containers": true, "Spec.InitContainers": true, "Spec.EphemeralContainers": true,
}

func TestTrimKeeps(t *testing.T) {
	p := filled[corev1.Pod]()
	snapshot.TrimPod(p)
	if diff := cmp.Diff(strings.Fields(keptOfPod), setFields(reflect.ValueOf(p).Elem(), "")); diff != "" {
		t.Errorf("fields of a trimmed pod (-want +got):\n%s", diff)
	}
	open["Spec"] = false
	defer func() { open["Spec"] = true }()
	n := filled[corev1.Node]()
	snapshot.TrimNode(n)
	if diff := cmp.Diff(strings.Fields(keptOfNode), setFields(reflect.ValueOf(n).Elem(), "")); diff != "" {
		t.Errorf("fields of a trimmed node (-want +got):\n%s", diff)
	}
}

// A pod to whose annotations nothing can be added is too large to be placed, and has no secret.
func TestTrimPodWithoutRoomForAnnotations(t *testing.T) {
	for length, tooLarge := range map[int]bool{96 << 10: false, 96<<10 + 1: true} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("s", length), "other": "o",
		}}}
		for range 2 { // a trimmed pod stays the same
			p = snapshot.TrimmedPod(p)
			if got := snapshot.PodSize(p) > snapshot.MaxPod; got != tooLarge || strings.Contains(fmt.Sprint(p), "sss") {
				t.Errorf("%d bytes: too large: %v, %.200v", length, got, p)
			}
		}
	}
}

// Trimming a shared object returns the same result as trimming an unshared one, and does not change the object.
func TestTrimmedObjectsAreCopies(t *testing.T) {
	p, n := filled[corev1.Pod](), filled[corev1.Node]()
	p.Annotations["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodInitialized}, corev1.PodCondition{Type: corev1.PodReady})
	wantPod, wantNode := p.DeepCopy(), n.DeepCopy()
	trimmedPod, trimmedNode := snapshot.TrimmedPod(p), snapshot.TrimmedNode(n)
	if diff := cmp.Diff(wantPod, p) + cmp.Diff(wantNode, n); diff != "" {
		t.Errorf("the objects have changed: %s", diff)
	}
	snapshot.TrimPod(wantPod)
	snapshot.TrimNode(wantNode)
	if diff := cmp.Diff(wantPod, trimmedPod) + cmp.Diff(wantNode, trimmedNode); diff != "" {
		t.Errorf("they are trimmed differently from others: %s", diff)
	}
	if &n.Status.Images[0] == &trimmedNode.Status.Images[0] || &n.Status.Images[0].Names[0] == &trimmedNode.Status.Images[0].Names[0] {
		t.Error("the node shares its images, which are written to, with its copy")
	}
}

// The size of a pod is that of what a watch shows, wherever the pod was read.
func TestPodSizeOfRequests(t *testing.T) {
	watched := filled[corev1.Pod]()
	watched.TypeMeta, watched.ResourceVersion = metav1.TypeMeta{}, "7"
	requested := watched.DeepCopy()
	requested.TypeMeta, requested.ResourceVersion = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, "123456"
	if a, b := snapshot.PodSize(watched), snapshot.PodSize(requested); a != b || a < 1000 {
		t.Errorf("a pod of a watch has %d bytes, and the same pod of a request %d", a, b)
	}
}

func TestTrimPodDropsSecrets(t *testing.T) {
	const secret = "hunter2"
	p := pod("p", "")
	p.Annotations = map[string]string{
		"kubectl.kubernetes.io/last-applied-configuration": `{"env":[{"value":"` + secret + `"}]}`,
		"example.com/kept": "yes",
	}
	container := corev1.Container{
		Name:    "c",
		Image:   "image:1",
		Command: []string{secret},
		Args:    []string{secret},
		Env:     []corev1.EnvVar{{Name: "TOKEN", Value: secret}},
		LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: secret}},
		}}},
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{secret}}}},
	}
	p.Spec.Containers = []corev1.Container{container}
	p.Spec.InitContainers = []corev1.Container{container}
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(container)}}
	p.Status.Message = secret
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: secret}}}}
	snapshot.TrimPod(p)
	text, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), secret) {
		t.Errorf("the trimmed pod still has the secret: %v", p)
	}
	if p.Annotations["example.com/kept"] != "yes" || p.Spec.Containers[0].Image != "image:1" {
		t.Errorf("TrimPod removed too much: %v", p)
	}
}

func TestTrimPodKeepsTheTypesOfVolumes(t *testing.T) {
	p := pod("p", "")
	p.Spec.Volumes = []corev1.Volume{
		{Name: "kube-api-access-x7k2p", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{}}}}},
		{Name: "claim", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}},
		{Name: "generic", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "inline", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}},
		{Name: "model", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "model:1"}}},
		{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}},
	}
	want := p.DeepCopy().Spec.Volumes
	want[0].Name, want[0].Projected.Sources = "kube-api-access-", nil
	want[2].Secret.SecretName = ""
	snapshot.TrimPod(p)
	if diff := cmp.Diff(want, p.Spec.Volumes); diff != "" {
		t.Errorf("volumes of the trimmed pod (-want +got):\n%s", diff)
	}
}

// A heartbeat does not count as a change.
func TestTrimNodeMakesHeartbeatsEqual(t *testing.T) {
	at := func(minutes int) *corev1.Node {
		n := node("a")
		n.ResourceVersion = strings.Repeat("1", minutes)
		n.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			LastHeartbeatTime:  metav1.NewTime(now.AddDate(0, 0, minutes)),
			LastTransitionTime: now,
		}}
		snapshot.TrimNode(n)
		return n
	}
	var b snapshot.Builder
	b.SetNode(at(1))
	v := b.View()
	b.SetNode(at(2))
	if b.View() != v {
		t.Error("a heartbeat published a new view")
	}
	if got := v.Node("a").Object.Status.Conditions[0].LastTransitionTime; !got.Equal(&now) {
		t.Errorf("got transition time %v", got)
	}
}

func TestTrimPodDropsProbeTimes(t *testing.T) {
	p := pod("p", "")
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, LastProbeTime: now, LastTransitionTime: now}}
	snapshot.TrimPod(p)
	if c := p.Status.Conditions[0]; !c.LastProbeTime.IsZero() || !c.LastTransitionTime.Equal(&now) {
		t.Errorf("got condition %v", c)
	}
}

func TestTrimPodDropsStepsToReady(t *testing.T) {
	p := pod("p", "")
	for _, c := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady,
		corev1.PodScheduled, corev1.DisruptionTarget, "example.com/warm",
	} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue})
	}
	snapshot.TrimPod(p)
	var kept []string
	for _, c := range p.Status.Conditions {
		kept = append(kept, string(c.Type))
	}
	if got := strings.Join(kept, " "); got != "Ready PodScheduled DisruptionTarget example.com/warm" {
		t.Errorf("kept %q", got)
	}
}

func filled[T any]() *T {
	object := new(T)
	fill(reflect.ValueOf(object).Elem())
	return object
}

// fill sets every field to something that is not zero.
func fill(v reflect.Value) {
	switch value := v.Addr().Interface().(type) {
	case *metav1.Time:
		*value = now
		return
	case *resource.Quantity:
		*value = resource.MustParse("1")
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	default:
		panic("cannot fill a " + v.Type().String())
	}
}

func setFields(v reflect.Value, prefix string) []string {
	var paths []string
	if v.Kind() == reflect.Slice {
		if v.Len() == 0 {
			return nil
		}
		v = v.Index(0)
	}
	for i := range v.NumField() {
		name := prefix + v.Type().Field(i).Name
		switch {
		case v.Field(i).IsZero():
		case open[name]:
			paths = append(paths, setFields(v.Field(i), name+".")...)
		default:
			paths = append(paths, name)
		}
	}
	return paths
}
