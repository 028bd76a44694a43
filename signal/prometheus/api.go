package prometheus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/prometheus/common/model"

	"outboard.dev/outboard/internal/httpclient"
	"outboard.dev/outboard/signal"
)

// This file implements a part of the HTTP API:
// https://prometheus.io/docs/prometheus/latest/querying/api/

// response is the API's response to a query.
type response struct {
	Status    string
	ErrorType string
	Error     string
	Warnings  []string
	Data      struct {
		ResultType string
		Result     json.RawMessage
	}

	value model.Value // a model.Vector, a *model.Scalar, or nil if the result is neither
}

// ask posts the query, which may be long. It uses GET if a proxy permits nothing else.
func (s *Source) ask(ctx context.Context, form url.Values, maxBytes int64) (*httpclient.Answer, error) {
	post, err := http.NewRequest(http.MethodPost, s.endpoint.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	post.Header["Idempotency-Key"] = nil // not sent; lets http.Client retry after a closed connection
	answer, err := s.client.Do(ctx, post, maxBytes)
	if err != nil {
		return nil, err
	}
	switch answer.Response.StatusCode {
	default:
		return answer, nil
	case http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotImplemented:
	}
	u := *s.endpoint
	u.RawQuery = form.Encode()
	get, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	return s.client.Do(ctx, get, maxBytes)
}

// decode returns the result of the response if the query was evaluated.
func decode(answer *httpclient.Answer, limits signal.Limits) (*response, error) {
	// A decoded series takes many times its memory in the response.
	if bytes.Count(answer.Content, []byte(`"metric":{`)) > limits.Values {
		return nil, signal.ErrTooMany
	}
	said := new(response)
	err := json.Unmarshal(answer.Content, said)
	if err == nil && said.Status == "error" {
		return nil, fmt.Errorf("%s: %s", answer.Line(said.ErrorType), answer.Line(said.Error))
	}
	if err := answer.Check(); err != nil {
		return nil, err
	}
	said.Data.ResultType = answer.Line(said.Data.ResultType)
	if err == nil {
		err = said.decodeResult()
	}
	if err != nil {
		return nil, fmt.Errorf("the response is invalid: %s: %s", answer.Line(err.Error()), answer.Excerpt())
	}
	return said, nil
}

func (r *response) decodeResult() error {
	switch r.Data.ResultType {
	case model.ValVector.String():
		var vector model.Vector
		err := json.Unmarshal(r.Data.Result, &vector)
		r.value = vector
		return err
	case model.ValScalar.String():
		scalar := new(model.Scalar)
		r.value = scalar
		return json.Unmarshal(r.Data.Result, scalar)
	}
	return nil
}
