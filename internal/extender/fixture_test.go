package extender_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/snapshot"
)

// failure returns why the call fails: its error, or the text with which it rejects every node because of the pod.
func failure(t *testing.T, answer string) string {
	t.Helper()
	r := decode[struct {
		Error                      string
		NodeNames                  *[]string
		FailedNodes                map[string]string
		FailedAndUnresolvableNodes map[string]string
	}](t, answer)
	if r.Error == "" && (r.NodeNames == nil || len(*r.NodeNames) == 0) && len(r.FailedNodes) == 0 {
		for _, text := range r.FailedAndUnresolvableNodes {
			return text
		}
	}
	return r.Error
}

// fakeCluster is a cluster that does not change.
type fakeCluster struct {
	view      *snapshot.View
	unsynced  error // the result of Synced
	pods      []*corev1.Pod
	live      *corev1.Pod // the pod as the API server has it; nil: as in pods
	bindErr   error
	touchErr  error
	touchedOn string       // the node of the pod that TouchPod returns; "": unchanged
	onBind    func() error // if not nil, its error is the result of Bind
	// onLive, if not nil, runs during LivePod; its error is the error of LivePod.
	onLive  func(ctx context.Context, name string) error
	liveErr error // the error of LivePod

	mu       sync.Mutex
	builder  snapshot.Builder // of the views of see
	assumed  []assumed
	byUID    map[types.UID]*corev1.Pod
	bindings []binder.Binding
	touches  int
}

// see publishes a view of the nodes and pods. Other pods are gone, unless they are in pods, or live.
func (f *fakeCluster) see(nodes []*corev1.Node, pods ...*corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.builder.View()
	for n := range before.All() {
		if !slices.ContainsFunc(nodes, func(other *corev1.Node) bool { return other.Name == n.Name }) {
			f.builder.DeleteNode(n.Name)
		}
		for _, pod := range n.Pods {
			f.leave(pod, pods)
		}
	}
	for _, pod := range before.Nominated() {
		f.leave(pod, pods)
	}
	for _, n := range nodes {
		f.builder.SetNode(n)
	}
	for _, p := range pods {
		f.builder.SetPod(p)
	}
	f.view = f.builder.View()
}

// leave removes the pod from its node unless the list has it.
func (f *fakeCluster) leave(pod *corev1.Pod, list []*corev1.Pod) {
	same := func(other *corev1.Pod) bool { return other.UID == pod.UID }
	if slices.ContainsFunc(list, same) {
		return
	}
	if i := slices.IndexFunc(f.pods, same); i >= 0 && f.pods[i].Spec.NodeName == "" {
		f.builder.SetPod(f.pods[i])
	} else {
		f.builder.DeletePod(pod.UID)
	}
}

type assumed struct {
	pod  *corev1.Pod
	node string
}

func (f *fakeCluster) View() *snapshot.View { return f.view }

// ViewFor is View with the pods that are assumed, except this one.
func (f *fakeCluster) ViewFor(uid types.UID) *snapshot.View {
	return f.with(f.View(), uid)
}

func (f *fakeCluster) with(view *snapshot.View, except types.UID) *snapshot.View {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.assumed {
		if node := view.Node(a.node); node != nil && a.pod.UID != except {
			view = view.WithNodes(node.With(a.pod))
		}
	}
	return view
}

func (f *fakeCluster) Assume(pod *corev1.Pod, node string) (forget func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.assumed = append(f.assumed, assumed{pod, node})
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		i := slices.Index(f.assumed, assumed{pod, node})
		f.assumed = slices.Delete(f.assumed, i, i+1)
	}
}

func (f *fakeCluster) Assumed(uid types.UID) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.assumed {
		if a.pod.UID == uid {
			return a.node
		}
	}
	return ""
}

// Superseded returns no channel, because tests replace view without notification.
func (f *fakeCluster) Superseded(*snapshot.View) <-chan struct{} { return nil }

func (f *fakeCluster) Synced() error { return f.unsynced }

func (f *fakeCluster) Pod(uid types.UID, resourceVersion string) *corev1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byUID == nil {
		f.byUID = map[types.UID]*corev1.Pod{}
		for _, p := range f.pods {
			f.byUID[p.UID] = p
		}
	}
	if p := f.byUID[uid]; p != nil && p.ResourceVersion == resourceVersion {
		return p
	}
	return nil
}

func (f *fakeCluster) LatestPod(uid types.UID) *corev1.Pod { return f.PodByUID(uid) }

func (f *fakeCluster) PodByName(namespace, name string) *corev1.Pod {
	for _, p := range f.pods {
		if p.Namespace == namespace && p.Name == name {
			return p
		}
	}
	return nil
}

func (f *fakeCluster) PodByUID(uid types.UID) *corev1.Pod {
	for _, p := range f.pods {
		if p.UID == uid {
			return p
		}
	}
	return nil
}

func (f *fakeCluster) LivePod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	if f.onLive != nil {
		if err := f.onLive(ctx, name); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live != nil || f.liveErr != nil {
		return f.live, f.liveErr
	}
	return f.PodByName(namespace, name), nil
}

func (f *fakeCluster) TouchPod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.touchErr != nil {
		return nil, f.touchErr
	}
	pod := f.live
	if pod == nil {
		pod = f.PodByName(namespace, name)
	}
	if pod == nil {
		return nil, nil
	}
	f.touches++
	touched := pod.DeepCopy()
	touched.ResourceVersion = fmt.Sprintf("%s.touched-%d", pod.ResourceVersion, f.touches)
	if f.touchedOn != "" {
		touched.Spec.NodeName = f.touchedOn
	}
	f.live = touched
	return touched, nil
}

func (f *fakeCluster) Throttle(ctx context.Context) (context.Context, error) {
	return ctx, nil
}

func (f *fakeCluster) Bind(_ context.Context, b binder.Binding) error {
	if f.onBind != nil {
		return f.onBind()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bindings = append(f.bindings, b)
	if f.live != nil && b.ResourceVersion != "" && b.ResourceVersion != f.live.ResourceVersion {
		return fmt.Errorf("refused: %w", binder.ErrPodChanged)
	}
	return f.bindErr
}

// usualPod is a pod of about 6 kB, as kube-scheduler sends it.
func usualPod() *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-0", UID: uidPlace, ResourceVersion: "12345",
			Labels:            map[string]string{"app": "web", "pod-template-hash": "6c9f8d7b5", "team": "platform"},
			Annotations:       map[string]string{"prometheus.io/scrape": "true", "checksum/config": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
			CreationTimestamp: metav1.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC),
		},
		Spec: corev1.PodSpec{SchedulerName: "default-scheduler", ServiceAccountName: "default"},
	}
	for c := range 3 {
		container := corev1.Container{
			Name: fmt.Sprintf("c%d", c), Image: fmt.Sprintf("registry.example.com/team/service-%d:1.2.3", c),
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("512Mi")},
				Limits:   corev1.ResourceList{"memory": resource.MustParse("1Gi")},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
		}
		for v := range 25 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", v), Value: "a value of some length"})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	return pod
}
