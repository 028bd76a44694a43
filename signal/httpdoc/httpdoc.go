package httpdoc

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"outboard.dev/outboard/config"
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/signal/content"
	"outboard.dev/outboard/signal/httpclient"
)

// accept is for servers that have a document in several formats.
var accept = map[config.Format]string{
	config.JSON: "application/json",
	config.CSV:  "text/csv",
}

// Source is a [signal.Source].
type Source struct {
	request *http.Request
	address string
	client  *httpclient.Client
	decoder *content.Decoder
}

// New returns a Source. The configuration is valid, but for paths in Content.
func New(c config.HTTPSource) (*Source, error) {
	decoder, err := content.New(c.Content)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequest(http.MethodGet, c.URL, nil)
	if err != nil {
		return nil, err
	}
	if kind := accept[c.Content.Format]; kind != "" {
		request.Header.Set("Accept", kind+", */*;q=0.1")
	}
	return &Source{request, httpclient.Address(request.URL), httpclient.New(c.Client), decoder}, nil
}

// Read gets the document.
func (s *Source) Read(ctx context.Context, limits signal.Limits) ([]signal.Sample, error) {
	samples, err := s.read(ctx, limits)
	if err != nil {
		return nil, fmt.Errorf("http %s: %w", s.address, err)
	}
	return samples, nil
}

func (s *Source) read(ctx context.Context, limits signal.Limits) ([]signal.Sample, error) {
	answer, err := s.client.Do(ctx, s.request, limits.Bytes)
	if err != nil {
		return nil, err
	}
	if err := answer.Check(); err != nil {
		return nil, err
	}
	return s.decoder.Decode(bytes.NewReader(answer.Content), limits)
}
