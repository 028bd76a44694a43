// Package replicas finds the replicas of Outboard in a cluster, reaches the admin address of each
// of them through the API server, and merges their responses.
//
// The user needs the permissions to list pods and to create pods/portforward in the namespace of
// Outboard.
package replicas

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/portforward"
	"outboard.dev/outboard/internal/respond"
	"outboard.dev/outboard/snapshot"
)

const (
	// Namespace is the namespace of Outboard in the chart and the manifests.
	Namespace = "outboard-system"
	// Selector selects the pods of Outboard by the label that the chart and the manifests set.
	Selector = "app.kubernetes.io/name=outboard"
	// PortName is the name of the container port of the admin address in the chart and the
	// manifests.
	PortName = "metrics"
	// Timeout bounds one request to one replica, together with the connection to it.
	Timeout = 10 * time.Second
)

// Replica is one pod of Outboard.
type Replica struct {
	// Name is the name of the pod.
	Name   string
	client *http.Client
	// down is why the replica cannot respond; nil if it may.
	down error
}

// ErrNoResponse is the error if there is no replica, or none responds.
var ErrNoResponse = errors.New("no response of Outboard (docs/troubleshooting.md, Calls fail)")

// Find lists the pods of Outboard in the namespace, by name, except those that have ended. It is an
// error if there is none.
func Find(ctx context.Context, config *rest.Config, namespace string) ([]Replica, error) {
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	pods, err := api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: Selector})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of Outboard in namespace %s: %w", namespace, err)
	}
	var found []Replica
	for i := range pods.Items {
		pod := &pods.Items[i]
		if snapshot.Ended(pod) {
			continue
		}
		r := Replica{Name: pod.Name}
		port := adminPort(pod)
		switch {
		case pod.Status.Phase != corev1.PodRunning:
			r.down = fmt.Errorf("the pod is %s", pod.Status.Phase)
		case port == 0:
			r.down = fmt.Errorf("the pod has no container port with the name %s", PortName)
		}
		r.client = &http.Client{Transport: &portforward.Transport{
			Config: config, API: api.CoreV1().RESTClient(), Namespace: namespace, Pod: pod.Name, Port: port,
		}}
		found = append(found, r)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: namespace %s has no pod of Outboard (with the label %s)", ErrNoResponse, namespace, Selector)
	}
	return found, nil
}

// adminPort returns the port of the pod's admin address, or 0.
func adminPort(pod *corev1.Pod) int {
	for i := range pod.Spec.Containers {
		for _, port := range pod.Spec.Containers[i].Ports {
			if port.Name == PortName {
				return int(port.ContainerPort)
			}
		}
	}
	return 0
}

// Fetch reads from one running service. admin is its admin address as a URL, which client reaches.
type Fetch[T any] func(ctx context.Context, client *http.Client, admin string) (T, error)

// Response is what one replica responds.
type Response[T any] struct {
	// Replica is the name of the pod.
	Replica string
	Value   T
	// Err is why the replica did not respond; then Value is zero.
	Err error
}

// FetchAll reads from all replicas concurrently, and returns their responses in the order of the
// replicas. Each replica has the time Timeout.
func FetchAll[T any](ctx context.Context, all []Replica, fetch Fetch[T]) []Response[T] {
	responses := make([]Response[T], len(all))
	var group sync.WaitGroup
	for i, r := range all {
		responses[i].Replica, responses[i].Err = r.Name, r.down
		if r.down != nil {
			continue
		}
		group.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, Timeout, fmt.Errorf("no response after %s", Timeout))
			defer cancel()
			responses[i].Value, responses[i].Err = fetch(ctx, r.client, "http://"+r.Name)
		})
	}
	group.Wait()
	return responses
}

// FetchJSON returns a function that reads the JSON at the path of a replica, which may have a
// query.
func FetchJSON[T any](path string) Fetch[T] {
	return func(ctx context.Context, client *http.Client, admin string) (value T, err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, admin+path, nil)
		if err != nil {
			return value, err
		}
		return value, respond.Read(client, req, &value)
	}
}

// Split separates the responses with a value from those with an error.
func Split[T any](responses []Response[T]) (good, failed []Response[T]) {
	for _, r := range responses {
		if r.Err != nil {
			failed = append(failed, r)
		} else {
			good = append(good, r)
		}
	}
	return good, failed
}

// Reason is the text of an error of FetchAll, without the URL, which is that of a port-forward.
func Reason(err error) string {
	if request := (*url.Error)(nil); errors.As(err, &request) {
		err = request.Err
	}
	return err.Error()
}

// RoundTrip sends a request to the replica, for its path and query; the rest of the URL does not
// matter. The caller closes the body of the response.
func (r *Replica) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.down != nil {
		return nil, r.down
	}
	req.URL.Scheme, req.URL.Host = "http", r.Name
	return r.client.Transport.RoundTrip(req)
}
