package cluster

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkPod looks up pods on all processors concurrently, without changes and with as many changes of pods as possible; for
// comparison, in a map without a lock.
func BenchmarkPod(b *testing.B) {
	const pods = 30000
	c := &Cluster{State: NewState()}
	var lockFree sync.Map
	uids := make([]types.UID, pods)
	for i := range pods {
		pod := examplePod(i, fmt.Sprint("p-", i))
		uids[i] = pod.UID
		c.SetPod(pod)
		lockFree.Store(pod.UID, pod)
	}
	change := func(i int) *corev1.Pod {
		pod := *c.PodByUID(uids[i%pods])
		pod.Generation++
		return &pod
	}
	for _, arm := range []struct {
		name   string
		change func(*corev1.Pod)
		find   func(types.UID) bool
	}{
		{"Cluster", c.SetPod, func(uid types.UID) bool { return c.PodByUID(uid) != nil }},
		{"sync.Map", func(pod *corev1.Pod) {
			c.SetPod(pod)
			lockFree.Store(pod.UID, pod)
		}, func(uid types.UID) bool {
			_, ok := lockFree.Load(uid)
			return ok
		}},
	} {
		lookup := func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i = (i + 7919) % pods {
					if !arm.find(uids[i]) {
						b.Error("a pod is missing")
					}
				}
			})
		}
		b.Run(arm.name+"/quiet", lookup)
		b.Run(arm.name+"/changing", func(b *testing.B) {
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
						arm.change(change(i))
					}
				}
			}()
			lookup(b)
			close(stop)
			<-stopped
		})
	}
}
