package prometheus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"outboard.dev/outboard/config"
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/signal/httpclient"
)

// Source is a [signal.Source].
type Source struct {
	config   config.PrometheusSource
	address  string
	urls     api.Client // of which only URL is used
	client   *httpclient.Client
	warnings string // the last ones
}

// New returns a Source. The configuration is valid.
func New(c config.PrometheusSource) (*Source, error) {
	urls, err := api.NewClient(api.Config{Address: c.Address})
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(c.Address)
	if err != nil {
		return nil, err
	}
	return &Source{config: c, address: httpclient.Address(u), urls: urls, client: httpclient.New(c.Client)}, nil
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
	// One more than there may be, to tell that there are more.
	options := []v1.Option{v1.WithLimit(uint64(limits.Values) + 1)}
	if deadline, ok := ctx.Deadline(); ok {
		options = append(options, v1.WithTimeout(whole(time.Until(deadline))))
	}
	call := &call{Client: s.urls, http: s.client, limits: limits}
	value, warnings, err := v1.NewAPI(call).Query(ctx, s.config.Query, time.Time{}, options...)
	if err != nil {
		return nil, call.explain(err)
	}
	s.warn(call.answer.Line(strings.Join(warnings, "; ")))
	return s.samples(value, limits)
}

// whole rounds a duration such that Prometheus, which knows no fractions, understands
// how Go writes it.
func whole(d time.Duration) time.Duration {
	unit := time.Second
	if d < unit {
		unit = time.Millisecond
	}
	return max(unit, d.Truncate(unit))
}

// warn logs what Prometheus has to say about a result that it gives all the same, such
// as that a part of it is missing; once.
func (s *Source) warn(text string) {
	if text != "" && text != s.warnings {
		slog.Default().Warn("a query has warnings", "prometheus", s.address, "query", s.config.Query, "warnings", text)
	}
	s.warnings = text
}

func (s *Source) samples(value model.Value, limits signal.Limits) ([]signal.Sample, error) {
	label := model.LabelName(s.config.NodeLabel + s.config.KeyLabel) // one of them at most
	switch value := value.(type) {
	case *model.Scalar:
		if label != "" {
			return nil, fmt.Errorf("the query gives a scalar, which has no label %q", label)
		}
		return []signal.Sample{{Number: float64(value.Value), At: value.Timestamp.Time()}}, nil
	case model.Vector:
		if len(value) > limits.Values {
			return nil, signal.ErrTooMany
		}
		if label == "" && len(value) > 1 {
			return nil, fmt.Errorf("the query gives %d numbers: without nodeLabel and keyLabel it must give one", len(value))
		}
		return s.vector(value, label)
	case nil:
		return nil, errors.New("the answer holds no result")
	}
	return nil, fmt.Errorf("the query gives a %s: it must give a vector or a scalar", value.Type())
}

func (s *Source) vector(vector model.Vector, label model.LabelName) ([]signal.Sample, error) {
	samples := make([]signal.Sample, 0, len(vector))
	for _, series := range vector {
		switch {
		case series == nil:
			return nil, errors.New("the answer holds no series where one should be")
		case series.Histogram != nil:
			return nil, errors.New("the query gives histograms: it must give numbers, as with histogram_quantile")
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

// withoutPort cuts off the port that the label instance usually has.
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

// call is the client of one query.
type call struct {
	api.Client
	http   *httpclient.Client
	limits signal.Limits
	answer *httpclient.Answer // the last; nil if there was none
}

// Do implements [api.Client].
func (c *call) Do(ctx context.Context, req *http.Request) (*http.Response, []byte, error) {
	answer, err := c.http.Do(ctx, req, c.limits.Bytes)
	if c.answer = answer; err != nil {
		return nil, nil, err
	}
	// Decoded, a series takes many times the memory that it takes here.
	if bytes.Count(answer.Content, []byte(`"metric":{`)) > c.limits.Values {
		return nil, nil, signal.ErrTooMany
	}
	return answer.Response, answer.Content, nil
}

// explain makes an error of Query one that tells the cause.
func (c *call) explain(err error) error {
	var failed *v1.Error
	if c.answer == nil || !errors.As(err, &failed) {
		return err
	}
	switch failed.Type {
	case v1.ErrBadResponse:
		return fmt.Errorf("the answer cannot be used: %s: %s", c.answer.Line(failed.Msg), c.answer.Excerpt())
	case v1.ErrServer, v1.ErrClient:
		if err := c.answer.Check(); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %s", failed.Type, c.answer.Line(failed.Msg))
}
