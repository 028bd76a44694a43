// Package metricsapi reads the resource usage of nodes from the Kubernetes metrics API
// (metrics.k8s.io), which metrics-server or an adapter serves behind the API server.
package metricsapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/signals/jsondoc"
	"outboard.dev/outboard/signal"
)

const path = "/apis/metrics.k8s.io/v1beta1/nodes"

// maxProblem bounds what is read of a failed response.
const maxProblem = 64 << 10

// ErrNotServed means that the API server does not have the metrics API.
var ErrNotServed = errors.New("the metrics API (metrics.k8s.io) is not served: it needs metrics-server, or an adapter, and its APIService")

// Source is a signal.Source. The time of a sample is that of the node's metrics.
type Source struct {
	resource string
	client   *http.Client
	url      string
}

// New returns a Source for the API server of the client configuration, which it copies. It sends no
// request.
func New(c Config, server *rest.Config) (*Source, error) {
	server = rest.CopyConfig(server)
	if server.UserAgent == "" {
		server.UserAgent = "outboard"
	}
	// A plain client, because those of client-go read a response of any length.
	client, err := rest.HTTPClientFor(server)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(server)
	if err != nil {
		return nil, err
	}
	return &Source{resource: c.Resource, client: client, url: base.JoinPath(path).String()}, nil
}

// Read implements signal.Source.
func (s *Source) Read(ctx context.Context, limits signal.Limits) ([]signal.Sample, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, problem(resp)
	}
	var metrics list
	err = jsondoc.Read(limits.Reader(resp.Body), &metrics)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, signal.ErrTooMany), errors.Is(err, signal.ErrTooLong):
		return nil, err
	case len(metrics.Items) > limits.Values:
		return nil, signal.ErrTooMany
	}
	var samples []signal.Sample
	for i := 0; err == nil && i < len(metrics.Items); i++ {
		item := &metrics.Items[i]
		amount := item.Usage[s.resource]
		if amount == "" {
			continue
		}
		var used float64
		if used, err = signal.ParseNumber(amount); used >= 0 {
			samples = append(samples, signal.Sample{Key: item.Metadata.Name, Number: used, At: item.Timestamp})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the response of the metrics API is not a list of metrics: %w", err)
	}
	return samples, nil
}

// list is a NodeMetricsList of the API.
type list struct {
	Items jsondoc.List[struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Usage     map[string]string `json:"usage"`
		Timestamp time.Time         `json:"timestamp"`
	}] `json:"items"`
}

// problem returns why the response has no list.
func problem(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil {
		return fmt.Errorf("the metrics API responds with %s: %w", resp.Status, err)
	}
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		text = []byte(status.Message)
	}
	if resp.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%w (%s)", ErrNotServed, strings.TrimSpace(string(text)))
	}
	const shown = 300
	return fmt.Errorf("the metrics API responds with %s: %s", resp.Status, strings.TrimSpace(strings.ToValidUTF8(string(text[:min(len(text), shown)]), "")))
}
