package cluster_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"outboard.dev/outboard/internal/cluster"
)

// deviceObjects are a node with a slice of a pool, a claim that has a device of it, and a class.
func deviceObjects() []runtime.Object {
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Labels: map[string]string{"a": "b"}}
	}
	node := "n"
	slice := &resourcev1.ResourceSlice{ObjectMeta: meta("", "s"), Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "gpu-0"}}}}
	claim := &resourcev1.ResourceClaim{ObjectMeta: meta("default", "c")}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu"}}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Driver: "gpu.example.com", Pool: node, Device: "gpu-0"}}}}
	return []runtime.Object{&corev1.Node{ObjectMeta: meta("", node)}, slice, claim, &resourcev1.DeviceClass{ObjectMeta: meta("", "gpu")}}
}

// A Cluster reads devices only if its options say so, with its own watches or the informers of another component, and also if the API server
// does not serve DeviceTaintRules.
func TestDevices(t *testing.T) {
	for name, devices := range map[string]bool{"own watches": true, "informers": true, "no DeviceTaintRules": true, "not asked for": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(deviceObjects()...)
				o := cluster.Options{Client: client, Devices: devices, Logger: slog.New(slog.DiscardHandler)}
				if name == "no DeviceTaintRules" {
					client.PrependReactor("list", "devicetaintrules", func(clienttesting.Action) (bool, runtime.Object, error) {
						return true, nil, apierrors.NewNotFound(resourcev1.Resource("devicetaintrules"), "")
					})
				}
				ctx, cancel := context.WithCancel(t.Context())
				if name == "informers" {
					o.Client, o.Informers = fake.NewClientset(), informers.NewSharedInformerFactory(client, 0)
				}
				live, err := cluster.New(o)
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan error)
				go func() { ended <- live.Run(ctx) }()
				defer func() { cancel(); <-ended }()
				if o.Informers != nil {
					o.Informers.Start(ctx.Done())
					defer func() { cancel(); o.Informers.Shutdown() }()
				}
				waiting, stop := context.WithTimeout(ctx, time.Minute)
				defer stop()
				if err := live.WaitForSync(waiting); err != nil {
					t.Fatal(live.Synced())
				}
				view := live.View()
				pools, class, claim := view.Node("n").DevicePools(), view.DeviceClass("gpu"), view.ResourceClaim("default", "c")
				if !devices {
					if len(pools) > 0 || class != nil || claim != nil {
						t.Errorf("%v, %v, %v without Options.Devices", pools, class, claim)
					}
					return
				}
				if len(pools) != 1 || len(pools[0].Slices) != 1 || len(pools[0].Allocated) != 1 || class == nil || claim == nil || claim.Labels != nil {
					t.Errorf("the view has %+v, %+v, %+v", pools, class, claim)
				}
			})
		})
	}
}
