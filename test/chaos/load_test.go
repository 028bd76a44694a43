package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/test/controlplane"
)

// cardSize is the memory of each GPU.
const cardSize = 16

// guest is a pod that is created, and deleted.
type guest struct {
	memory    int64
	created   time.Time
	bound     bool
	leave     time.Time // zero: the pod stays until it is bound
	ends      bool      // it ends by itself before it is deleted
	ended     bool
	impatient bool // it is deleted whether it is bound or not
	gone      bool
}

// fits reports whether the pod fits on an empty GPU.
func (g *guest) fits() bool { return g.memory <= cardSize }

// load creates and deletes pods. It makes all decisions from lists of pods, so nothing is lost
// while the API server is unreachable.
type load struct {
	client   kubernetes.Interface
	capacity int64 // of all GPUs together
	atLeast  int   // minimum number of pods
	crowd    int   // number of pods waiting at a time
	goOn     func() bool
	stay     func() time.Duration // minimum time that a bound pod stays
	anyNode  func() string

	mu     sync.Mutex
	guests map[string]*guest
	bound  int
	ticks  int
}

func newLoad(client kubernetes.Interface, s scale, goOn func() bool) *load {
	return &load{
		client: client, capacity: int64(s.nodes * s.cards * cardSize), atLeast: s.pods, crowd: s.waiting, goOn: goOn,
		anyNode: func() string { return nodeName(rand.IntN(s.nodes)) },
		stay:    func() time.Duration { return s.stay/2 + rand.N(s.stay) },
		guests:  map[string]*guest{},
	}
}

// abandonedNamespace has the pods of abandon, separate from those that load waits for.
const abandonedNamespace = "kube-system"

// abandon creates pods whose scheduler does not wait for the response and never retries, like one
// that crashes, until ctx ends. Replicas must release their allocations when they stay unbound, while a
// Binding may still be in progress. abandon deletes each pod after a while.
func (l *load) abandon(ctx context.Context, service string, after time.Duration) {
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(500 * time.Millisecond):
		}
		spec := controlplane.PodSpec{
			Namespace: abandonedNamespace, Name: fmt.Sprintf("abandoned-%04d", n), SchedulerName: "crashed", Resources: gpuMemory(1),
		}
		pod, err := l.client.CoreV1().Pods(abandonedNamespace).Create(ctx, spec.Pod(), metav1.CreateOptions{})
		if err != nil {
			continue // the API server is unreachable
		}
		time.AfterFunc(300*time.Millisecond, func() {
			ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond+rand.N(500*time.Millisecond))
			defer cancel()
			args := fmt.Sprintf(`{"PodName":%q,"PodNamespace":%q,"PodUID":%q,"Node":%q}`, pod.Name, pod.Namespace, pod.UID, l.anyNode())
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+service+"/bind", strings.NewReader(args))
			if err != nil {
				panic(err) // the URL is valid
			}
			if response, err := http.DefaultClient.Do(request); err == nil {
				response.Body.Close()
			}
		})
		time.AfterFunc(after, func() { _ = controlplane.DeletePod(ctx, l.client, pod) })
	}
}

// takenBack counts the remaining abandoned pods that have lost an allocation.
func (l *load) takenBack(ctx context.Context) (n int, err error) {
	list, err := l.client.CoreV1().Pods(abandonedNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	for i := range list.Items {
		if _, ok := list.Items[i].Annotations[cluster.ReleaseAnnotation]; ok {
			n++
		}
	}
	return n, nil
}

func gpuMemory(amount int64) map[string]string {
	return map[string]string{memoryResource: fmt.Sprint(amount)}
}

// run returns when load has created enough pods, and each pod that fits has been bound, or deleted
// because it was impatient. The remaining pods stay.
func (l *load) run(ctx context.Context) error {
	for {
		done, err := l.step(ctx)
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %v", l.status(), context.Cause(ctx), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (l *load) step(ctx context.Context) (done bool, err error) {
	if l.ticks++; l.ticks%5 == 0 {
		// kube-scheduler retries pods after events, and in a real cluster events are frequent.
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"happened":"%d"}}}`, l.ticks)
		_, _ = l.client.CoreV1().Nodes().Patch(ctx, l.anyNode(), types.MergePatchType, patch, metav1.PatchOptions{})
	}
	list, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	now := time.Now()
	var todo []func() error // runs after the guests are unlocked
	l.mu.Lock()
	wanted := l.atLeast > len(l.guests) || l.goOn()
	occupied, waiting := int64(0), 0
	live := map[string]bool{}
	for i := range list.Items {
		g := l.guests[list.Items[i].Name]
		live[list.Items[i].Name] = true
		l.see(g, &list.Items[i], now)
		if g.bound && !g.ended {
			occupied += g.memory
		}
		if g.fits() && !g.bound && !g.impatient {
			waiting++
		}
	}
	// load deletes pods when the GPUs are rather full, and others wait; of the last pods, so many
	// stay that some GPU has room for any pod.
	enough := l.capacity * 3 / 4
	if !wanted {
		enough = l.capacity * 2 / 5
	}
	for _, i := range rand.Perm(len(list.Items)) {
		pod := &list.Items[i]
		g := l.guests[pod.Name]
		if g.leave.IsZero() || now.Before(g.leave) || !g.impatient && !g.ended && occupied <= enough {
			continue
		}
		if g.bound && !g.ended {
			occupied -= g.memory
		}
		todo = append(todo, func() error { return l.dismiss(ctx, g, pod) })
	}
	for name, g := range l.guests {
		if !live[name] && !g.gone {
			if g.created.IsZero() { // its creation failed, or the outcome is unknown
				todo = append(todo, func() error { return l.create(ctx, name, g) })
				waiting++
				continue
			}
			g.gone = true
		}
	}
	for ; wanted && waiting < l.crowd && len(l.guests) < 10*l.atLeast; waiting++ {
		name, g := fmt.Sprintf("pod-%05d", len(l.guests)), newGuest(len(l.guests))
		l.guests[name] = g
		todo = append(todo, func() error { return l.create(ctx, name, g) })
	}
	l.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(16)
	for _, do := range todo {
		group.Go(do)
	}
	err = group.Wait()
	return waiting == 0 && !wanted && err == nil, err
}

func newGuest(n int) *guest {
	g := &guest{memory: 1 + rand.Int64N(10), ends: rand.IntN(4) == 0, impatient: rand.IntN(25) == 0}
	if n%100 == 50 {
		g.memory, g.impatient = cardSize+1, false // no GPU is that large
	}
	return g
}

// see records the state of the pod.
func (l *load) see(g *guest, pod *corev1.Pod, now time.Time) {
	if g.created.IsZero() {
		g.created = now
		if g.impatient {
			g.leave = now.Add(rand.N(2 * time.Second))
		}
	}
	if pod.Spec.NodeName != "" && !g.bound {
		g.bound = true
		l.bound++
		if g.leave.IsZero() {
			g.leave = now.Add(l.stay())
		}
	}
	g.ended = pod.Status.Phase == corev1.PodSucceeded
}

func (l *load) create(ctx context.Context, name string, g *guest) error {
	pod := controlplane.PodSpec{
		Name: name, Resources: gpuMemory(g.memory),
		SchedulerName: schedulerName(rand.IntN(schedulers)),
	}.Pod()
	_, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// dismiss ends the pod, and deletes it when it has ended.
func (l *load) dismiss(ctx context.Context, g *guest, pod *corev1.Pod) error {
	if g.ends && pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodSucceeded {
		_, err := l.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType,
			[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
		l.mu.Lock()
		defer l.mu.Unlock()
		g.leave = time.Now().Add(l.stay())
		return err
	}
	if err := controlplane.DeletePod(ctx, l.client, pod); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	return nil
}

// status returns the numbers of created and missing pods.
func (l *load) status() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var missing []string
	for name, g := range l.guests {
		if g.fits() && !g.bound && !g.impatient && !g.gone {
			missing = append(missing, name)
		}
	}
	text := fmt.Sprintf("%d pods, %d bound, %d waiting", len(l.guests), l.bound, len(missing))
	if len(missing) > 0 && len(missing) < 10 {
		text += " (" + strings.Join(missing, " ") + ")"
	}
	return text
}
