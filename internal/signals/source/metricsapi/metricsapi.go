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

	"outboard.dev/outboard/internal/signals/jsonstream"
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
	samples, err := s.samples(jsonstream.New(limits.Reader(resp.Body)), limits.Values)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, signal.ErrTooMany), errors.Is(err, signal.ErrTooLong):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("the response of the metrics API is not a list of metrics: %w", err)
	}
	return samples, nil
}

// samples reads a NodeMetricsList of the API. It stops at the first item beyond the limit.
func (s *Source) samples(list *jsonstream.Reader, most int) ([]signal.Sample, error) {
	var samples []signal.Sample
	items := 0
	_, err := list.Value(func(name string) error {
		if name != "items" {
			return list.Skip()
		}
		_, err := list.Value(nil, func() error {
			if items++; items > most {
				return signal.ErrTooMany
			}
			sample, ok, err := s.sample(list)
			if ok {
				samples = append(samples, sample)
			}
			return err
		})
		return err
	}, nil)
	return samples, err
}

// sample reads a NodeMetrics. ok is false if it has no amount of the resource.
func (s *Source) sample(list *jsonstream.Reader) (sample signal.Sample, ok bool, err error) {
	text := func(name string, use func(text string) error) func(string) error {
		return func(field string) error {
			if field != name {
				return list.Skip()
			}
			value, err := list.Text()
			if err != nil || value == "" {
				return err
			}
			return use(value)
		}
	}
	_, err = list.Value(func(name string) (err error) {
		switch name {
		case "metadata":
			_, err = list.Value(text("name", func(name string) error {
				sample.Key = name
				return nil
			}), nil)
		case "usage":
			_, err = list.Value(text(s.resource, func(amount string) error {
				used, err := signal.ParseNumber(amount)
				sample.Number, ok = used, used >= 0
				return err
			}), nil)
		case "timestamp":
			err = text(name, func(at string) (err error) {
				sample.At, err = time.Parse(time.RFC3339, at)
				return err
			})(name)
		default:
			err = list.Skip()
		}
		return err
	}, nil)
	return sample, ok && err == nil, err
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
