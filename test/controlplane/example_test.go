package controlplane_test

import (
	"context"
	"fmt"
	"log"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"outboard.dev/outboard/test/controlplane"
)

func Example() {
	ctx := context.Background()
	cp, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer cp.Stop()
	if _, err := cp.StartScheduler(ctx, controlplane.SchedulerOptions{}); err != nil {
		log.Panic(err)
	}
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		log.Panic(err)
	}

	err = controlplane.CreateNodes(ctx, client,
		controlplane.NodeSpec{Name: "plain"}.Node(),
		controlplane.NodeSpec{Name: "with-gpu", Resources: map[string]string{"nvidia.com/gpu": "4"}}.Node(),
	)
	if err != nil {
		log.Panic(err)
	}
	pod := controlplane.PodSpec{Name: "training", CPU: "2", Resources: map[string]string{"nvidia.com/gpu": "1"}}.Pod()
	pod, err = client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		log.Panic(err)
	}
	pod, err = controlplane.WaitForPodBound(ctx, client, pod)
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(pod.Name, "is on", pod.Spec.NodeName)
	// Output: training is on with-gpu
}
