package schedplugin

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

// handleOfCluster is the handle of a profile that offers what the process needs. No API server is at its address.
type handleOfCluster struct {
	handleOf
	informers informers.SharedInformerFactory
}

func (handleOfCluster) KubeConfig() *rest.Config { return &rest.Config{Host: "http://127.0.0.1:1"} }

func (h handleOfCluster) SharedInformerFactory() informers.SharedInformerFactory {
	return h.informers
}

// Plugins of one factory share a process as long as it runs. A program that runs one kube-scheduler after the other, as a test does, needs
// another one for the second: the first process no longer sees the cluster.
func TestFactoryBeginsAnew(t *testing.T) {
	factory := New(nil, nil)
	handle := handleOfCluster{handleOf{name: "default-scheduler"}, informers.NewSharedInformerFactory(fake.NewClientset(), 0)}
	args := &runtime.Unknown{Raw: []byte(header + "admin: {address: 127.0.0.1:0}\nprofiles: [{policies: [{type: ImageLocality}]}]")}
	made := func(ctx context.Context) *process {
		t.Helper()
		p, err := factory(ctx, args, handle)
		if err != nil {
			t.Fatal(err)
		}
		return p.(*plugin).process
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := made(ctx)
	if made(t.Context()) != first {
		t.Error("two plugins of a running process do not share it")
	}
	cancel()
	second := made(t.Context())
	if second == first {
		t.Error("a plugin uses a process that has ended")
	}
	if made(t.Context()) != second {
		t.Error("two plugins of the second process do not share it")
	}
}
