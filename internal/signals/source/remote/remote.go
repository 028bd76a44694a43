// Package remote reads the resources of another cluster, and what is left of them, from its API
// server.
package remote

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"outboard.dev/outboard/signal"
)

// Source is a signal.Source. Its keys are, for each resource that a node has,
//
//	RESOURCE/total    what is allocatable on all nodes
//	RESOURCE/free     what is left of that on nodes that take pods
//	RESOURCE/largest  what is left of it on the node that has most left
//
// with cpu in cores and memory in bytes, and in addition nodes/total, nodes/ready and nodes/open:
// how many nodes exist, are Ready, and accept pods. See [sum].
//
// The first read lists nodes and pods page by page, and keeps only what each has or requests. Later
// reads apply the changes since then, from a watch of one second. So the cost of a read for the
// other cluster depends on what changed, and not on its size; nothing runs between reads; and a
// read is current or fails, while the watch of an informer may be dead without an error.
type Source struct {
	config Config

	kubeconfig []byte // of the current client; nil: there is none
	transport  http.RoundTripper
	limit      *limit
	nodes      *mirror[node]
	pods       *mirror[pod]
}

// New returns a Source. It reads nothing yet: a missing or invalid kubeconfig is an error of each
// read until it is valid, and the next read uses a changed one.
func New(c Config) *Source { return &Source{config: c} }

// Read implements signal.Source. It takes more than a second.
func (s *Source) Read(ctx context.Context, limits signal.Limits) ([]signal.Sample, error) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < watchTime {
		return nil, fmt.Errorf("the timeout is too short: reading another cluster takes more than %v", watchTime)
	}
	if err := s.connect(); err != nil {
		return nil, err
	}
	s.limit.bytes.Store(limits.Bytes)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.nodes.catchUp(ctx) })
	group.Go(func() error { return s.pods.catchUp(ctx) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return samples(sum(s.nodes.kept, s.pods.kept), limits.Values)
}

// connect creates the client, and again when the kubeconfig has changed, which may have other
// credentials or another cluster.
func (s *Source) connect() error {
	kubeconfig, err := os.ReadFile(s.config.Kubeconfig)
	if err != nil {
		return err
	}
	if s.kubeconfig != nil && bytes.Equal(kubeconfig, s.kubeconfig) {
		return nil
	}
	server, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return fmt.Errorf("%s: %w", s.config.Kubeconfig, err)
	}
	limit := &limit{}
	server.ContentType, server.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	server.UserAgent = "outboard"
	server.QPS = -1 // two concurrent requests, and the pages of a list
	server.Wrap(limit.wrap)
	client, err := rest.HTTPClientFor(server)
	if err != nil {
		return fmt.Errorf("%s: %w", s.config.Kubeconfig, err)
	}
	clientset, err := kubernetes.NewForConfigAndClient(server, client)
	if err != nil {
		return fmt.Errorf("%s: %w", s.config.Kubeconfig, err)
	}
	if err := s.Close(); err != nil {
		return err
	}
	s.kubeconfig, s.transport, s.limit = kubeconfig, client.Transport, limit
	s.nodes, s.pods = nodesOf(clientset), podsOf(clientset)
	return nil
}

// Close closes the connections.
func (s *Source) Close() error {
	if s.transport != nil {
		utilnet.CloseIdleConnectionsFor(s.transport)
	}
	return nil
}

func nodesOf(client kubernetes.Interface) *mirror[node] {
	return &mirror[node]{
		kind: "nodes", most: maxNodes,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Nodes().List(ctx, o)
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Nodes().Watch(ctx, o)
		},
		keep: func(o runtime.Object) (node, bool) { return nodeOf(o.(*corev1.Node)), true },
	}
}

// podsOf mirrors the pods that hold resources of a node. It watches all pods, because a watch with
// a selector does not report its resourceVersion, and the API server forgets old ones.
func podsOf(client kubernetes.Interface) *mirror[pod] {
	holding := fields.ParseSelectorOrDie("spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed").String()
	return &mirror[pod]{
		kind: "pods", most: maxPods,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = holding
			return client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, o)
		},
		keep: func(o runtime.Object) (pod, bool) { return podOf(o.(*corev1.Pod)) },
	}
}
