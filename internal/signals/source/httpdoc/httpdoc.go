package httpdoc

import (
	"context"
	"fmt"
	"net/http"

	"outboard.dev/outboard/internal/signals/format"
	"outboard.dev/outboard/internal/signals/httpclient"
	"outboard.dev/outboard/signal"
)

// Source is a [signal.Source].
type Source struct {
	request *http.Request
	address string
	client  *httpclient.Client
	decoder *format.Decoder
}

// New returns a Source. The configuration is valid, except for the paths of the document.
func New(c Config) (*Source, error) {
	decoder, err := format.New(c.Document)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequest(http.MethodGet, c.URL, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json, */*;q=0.1") // from a server with several formats
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
	res, err := s.client.Do(ctx, s.request, limits)
	if err != nil {
		return nil, err
	}
	defer res.Close()
	if err := res.Check(); err != nil {
		return nil, err
	}
	return s.decoder.Decode(res.Body, limits)
}
