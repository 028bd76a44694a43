package prometheus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"outboard.dev/outboard/internal/httpclient"
	"outboard.dev/outboard/signal"
)

// Source is a [signal.Source].
type Source struct {
	config   Config
	address  string // in a form for errors and logs
	endpoint *url.URL
	client   *httpclient.Client
	warnings string // the last ones
}

// New returns a Source. The configuration is valid.
func New(c Config) (*Source, error) {
	u, err := url.Parse(c.Address)
	if err != nil {
		return nil, err
	}
	return &Source{config: c, address: httpclient.Address(u), endpoint: u.JoinPath("api/v1/query"), client: httpclient.New(c.Client)}, nil
}

// Read evaluates the query now.
func (s *Source) Read(ctx context.Context, limits signal.Limits) ([]signal.Sample, error) {
	samples, err := s.read(ctx, limits)
	if err != nil {
		return nil, fmt.Errorf("prometheus %s: %w", s.address, err)
	}
	return samples, nil
}

func (s *Source) read(ctx context.Context, limits signal.Limits) ([]signal.Sample, error) {
	// One more than the limit, to detect that there are more.
	form := url.Values{"query": {s.config.Query}, "limit": {strconv.Itoa(limits.Values + 1)}}
	if deadline, ok := ctx.Deadline(); ok {
		form.Set("timeout", whole(time.Until(deadline)).String())
	}
	answer, err := s.ask(ctx, form, limits.Bytes)
	if err != nil {
		return nil, err
	}
	said, err := decode(answer, limits)
	if err != nil {
		return nil, err
	}
	s.warn(answer.Line(strings.Join(said.Warnings, "; ")))
	return s.samples(said, limits)
}

// whole rounds a duration so that Prometheus, which does not accept fractions, understands Go's
// text of it.
func whole(d time.Duration) time.Duration {
	unit := time.Second
	if d < unit {
		unit = time.Millisecond
	}
	return max(unit, d.Truncate(unit))
}

// warn logs warnings of Prometheus about a result, such as that a part of it is missing; each once.
func (s *Source) warn(text string) {
	if text != "" && text != s.warnings {
		slog.Default().Warn("the query has warnings", "prometheus", s.address, "query", s.config.Query, "warnings", text)
	}
	s.warnings = text
}

func (s *Source) samples(said *response, limits signal.Limits) ([]signal.Sample, error) {
	label := model.LabelName(s.config.NodeLabel + s.config.KeyLabel) // at most one of them
	switch value := said.value.(type) {
	case *model.Scalar:
		if label != "" {
			return nil, fmt.Errorf("the query returns a scalar, which has no label %q", label)
		}
		return []signal.Sample{{Number: float64(value.Value), At: value.Timestamp.Time()}}, nil
	case model.Vector:
		if len(value) > limits.Values {
			return nil, signal.ErrTooMany
		}
		if label == "" && len(value) > 1 {
			return nil, fmt.Errorf("the query returns %d numbers: without nodeLabel and keyLabel it must return one", len(value))
		}
		return s.vector(value, label)
	}
	if said.Data.ResultType == "" {
		return nil, errors.New("the response has no result")
	}
	return nil, fmt.Errorf("the query returns a %s: it must return a vector or a scalar", said.Data.ResultType)
}

func (s *Source) vector(vector model.Vector, label model.LabelName) ([]signal.Sample, error) {
	samples := make([]signal.Sample, 0, len(vector))
	for _, series := range vector {
		switch {
		case series == nil:
			return nil, errors.New("the response has an empty series")
		case series.Histogram != nil:
			return nil, errors.New("the query returns histograms: it must return numbers, as with histogram_quantile")
		}
		key := string(series.Metric[label])
		if s.config.NodeLabel != "" {
			key = withoutPort(key)
		}
		if key != "" || label == "" {
			samples = append(samples, signal.Sample{Key: key, Number: float64(series.Value), At: series.Timestamp.Time()})
		}
	}
	return samples, nil
}

// withoutPort removes the port that the label instance usually has.
func withoutPort(name string) string {
	host, port, err := net.SplitHostPort(name)
	if err != nil {
		return name
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return name
	}
	return host
}
