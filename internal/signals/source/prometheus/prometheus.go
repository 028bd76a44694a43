package prometheus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"outboard.dev/outboard/internal/signals/httpclient"
	"outboard.dev/outboard/internal/signals/jsondoc"
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
	res, err := s.ask(ctx, form, limits)
	if err != nil {
		return nil, err
	}
	defer res.Close()
	said, err := decode(ctx, res)
	if err != nil {
		return nil, err
	}
	s.warn(res.Line(strings.Join(said.Warnings, "; ")))
	return s.samples(said, res, limits.Values)
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

func (s *Source) samples(said *response, res *httpclient.Response, most int) ([]signal.Sample, error) {
	label := s.config.NodeNameLabel + s.config.KeyLabel // at most one of them
	switch said.Data.ResultType {
	case scalar:
		if label != "" {
			return nil, fmt.Errorf("the query returns a scalar, which has no label %q", label)
		}
		var one pair
		err := json.Unmarshal(said.Data.Result, &one)
		sample, wrong := one.sample("")
		if err = cmp.Or(err, wrong); err != nil {
			return nil, invalid(res, err)
		}
		return []signal.Sample{sample}, nil
	case vector:
		var all jsondoc.List[*series]
		switch err := json.Unmarshal(said.Data.Result, &all); {
		case errors.Is(err, signal.ErrTooMany) || len(all) > most:
			return nil, signal.ErrTooMany
		case err != nil:
			return nil, invalid(res, err)
		case label == "" && len(all) > 1:
			return nil, fmt.Errorf("the query returns %d numbers: without nodeNameLabel and keyLabel it must return one", len(all))
		}
		return s.vector(all, label, res)
	case "":
		return nil, errors.New("the response has no result")
	}
	return nil, fmt.Errorf("the query returns a %s: it must return a vector or a scalar", res.Line(said.Data.ResultType))
}

func (s *Source) vector(all []*series, label string, res *httpclient.Response) ([]signal.Sample, error) {
	samples := make([]signal.Sample, 0, len(all))
	for _, one := range all {
		switch {
		case one == nil:
			return nil, errors.New("the response has an empty series")
		case one.Histogram != nil:
			return nil, errors.New("the query returns histograms: it must return numbers, as with histogram_quantile")
		}
		key := one.Metric[label]
		if s.config.NodeNameLabel != "" {
			key = withoutPort(key)
		}
		sample, err := one.Value.sample(key)
		if err != nil {
			return nil, invalid(res, err)
		}
		if key != "" || label == "" {
			samples = append(samples, sample)
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
