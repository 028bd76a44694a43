package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"outboard.dev/outboard/internal/signals/httpclient"
	"outboard.dev/outboard/internal/signals/jsondoc"
	"outboard.dev/outboard/signal"
)

// This file implements a part of the HTTP API:
// https://prometheus.io/docs/prometheus/latest/querying/api/

// Types of results.
const (
	vector = "vector"
	scalar = "scalar"
)

// response is the API's response to a query.
type response struct {
	Status    string               `json:"status"`
	ErrorType string               `json:"errorType"`
	Error     string               `json:"error"`
	Warnings  jsondoc.List[string] `json:"warnings"`
	Data      struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
}

// series is what the Source reads of a series.
type series struct {
	Metric    map[string]string `json:"metric"`
	Value     pair              `json:"value"`
	Histogram json.RawMessage   `json:"histogram"`
}

// pair is a time in seconds, and a number as text.
type pair struct {
	seconds float64
	text    string
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *pair) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&p.seconds, &p.text})
}

func (p *pair) sample(key string) (signal.Sample, error) {
	number, err := strconv.ParseFloat(p.text, 64)
	if err != nil {
		return signal.Sample{}, fmt.Errorf("%.100q is not a number with its time", p.text)
	}
	return signal.Sample{Key: key, Number: number, At: time.UnixMilli(int64(math.Round(1000 * p.seconds)))}, nil
}

// ask posts the query, which may be long. It uses GET if a proxy permits nothing else.
func (s *Source) ask(ctx context.Context, form url.Values, limits signal.Limits) (*httpclient.Response, error) {
	post, err := http.NewRequest(http.MethodPost, s.endpoint.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	post.Header["Idempotency-Key"] = nil // not sent; lets http.Client retry after a closed connection
	res, err := s.client.Do(ctx, post, limits)
	if err != nil {
		return nil, err
	}
	switch res.Response.StatusCode {
	default:
		return res, nil
	case http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotImplemented:
	}
	res.Close()
	u := *s.endpoint
	u.RawQuery = form.Encode()
	get, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	return s.client.Do(ctx, get, limits)
}

// decode returns the response if the query was evaluated.
func decode(ctx context.Context, res *httpclient.Response) (*response, error) {
	said := new(response)
	err := jsondoc.Read(res.Body, said)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, signal.ErrTooMany), errors.Is(err, signal.ErrTooLong):
		return nil, err
	case err == nil && said.Status == "error":
		return nil, fmt.Errorf("%s: %s", res.Line(said.ErrorType), res.Line(said.Error))
	}
	if wrong := res.Check(); wrong != nil {
		return nil, wrong
	}
	if err != nil {
		return nil, invalid(res, err)
	}
	return said, nil
}

// invalid returns the error of a response that is not one of the API.
func invalid(res *httpclient.Response, err error) error {
	return fmt.Errorf("the response is invalid: %s: %s", res.Line(err.Error()), res.Excerpt())
}
