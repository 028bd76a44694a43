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
	"outboard.dev/outboard/internal/signals/jsonstream"
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
	status, errorType, problem string
	warnings                   []string
	resultType                 string
	hasResult                  bool
	series                     []series // of a vector
	pair                       pair     // of a scalar
}

// series is what the Source reads of a series.
type series struct {
	pair
	key       string // the value of its label
	empty     bool   // it is null
	histogram bool
}

// pair is a time and a number, as text.
type pair struct {
	seconds float64
	text    string
	parts   int
}

func (p *pair) add(part json.Token) {
	switch p.parts++; p.parts {
	case 1:
		p.seconds, _ = part.(float64)
	case 2:
		p.text, _ = part.(string)
	}
}

func (p *pair) sample(key string) (signal.Sample, error) {
	number, err := strconv.ParseFloat(p.text, 64)
	if p.parts != 2 || err != nil {
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

// decode returns the result of the response if the query was evaluated, with the value of the label
// of each series.
func decode(ctx context.Context, res *httpclient.Response, label string, most int) (*response, error) {
	said := new(response)
	err := said.read(jsonstream.New(res.Body), label, most)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, signal.ErrTooMany), errors.Is(err, signal.ErrTooLong):
		return nil, err
	case err == nil && said.status == "error":
		return nil, fmt.Errorf("%s: %s", res.Line(said.errorType), res.Line(said.problem))
	}
	if wrong := res.Check(); wrong != nil {
		return nil, wrong
	}
	if err != nil {
		return nil, invalid(res, err)
	}
	said.resultType = res.Line(said.resultType)
	return said, nil
}

// invalid returns the error of a response that is not one of the API.
func invalid(res *httpclient.Response, err error) error {
	return fmt.Errorf("the response is invalid: %s: %s", res.Line(err.Error()), res.Excerpt())
}

// read reads the response. It keeps neither series beyond the limit nor labels that nobody reads.
func (r *response) read(s *jsonstream.Reader, label string, most int) error {
	token, err := s.Value(func(name string) (err error) {
		switch name {
		case "status":
			r.status, err = s.Text()
		case "errorType":
			r.errorType, err = s.Text()
		case "error":
			r.problem, err = s.Text()
		case "warnings":
			_, err = s.Value(nil, func() error { return r.readWarning(s) })
		case "data":
			_, err = s.Value(func(name string) error { return r.readData(name, s, label, most) }, nil)
		default:
			err = s.Skip()
		}
		return err
	}, nil)
	switch {
	case err != nil:
		return err
	case token != json.Delim('{'):
		return errors.New("not an object")
	case r.resultType == vector && (!r.hasResult || r.pair.parts > 0):
		return errors.New("the result is not a list of series")
	}
	return s.End()
}

// maxWarnings bounds the warnings that are kept.
const maxWarnings = 10

func (r *response) readWarning(s *jsonstream.Reader) error {
	text, err := s.Text()
	if len(r.warnings) < maxWarnings {
		r.warnings = append(r.warnings, text)
	}
	return err
}

// readData reads a field of the response's data.
func (r *response) readData(name string, s *jsonstream.Reader, label string, most int) (err error) {
	switch name {
	case "resultType":
		r.resultType, err = s.Text()
		return err
	case "result":
		r.hasResult = true
		_, err = s.Value(nil, func() error {
			if len(r.series) >= most {
				return signal.ErrTooMany
			}
			return r.readItem(s, label)
		})
		return err
	}
	return s.Skip()
}

// readItem reads an item of the result: a series, or a part of a scalar.
func (r *response) readItem(s *jsonstream.Reader, label string) error {
	var one series
	token, err := s.Value(func(name string) (err error) {
		switch name {
		case "metric":
			_, err = s.Value(func(name string) (err error) {
				if name != label {
					return s.Skip()
				}
				one.key, err = s.Text()
				return err
			}, nil)
		case "value":
			_, err = s.Value(nil, func() error {
				part, err := s.Value(nil, nil)
				one.add(part)
				return err
			})
		default:
			one.histogram = one.histogram || name == "histogram"
			err = s.Skip()
		}
		return err
	}, nil)
	switch one.empty = token == nil; token {
	case nil, json.Delim('{'):
		r.series = append(r.series, one)
	default:
		if r.pair.add(token); r.pair.parts > 2 {
			return errors.New("the result is not a list of series")
		}
	}
	return err
}
