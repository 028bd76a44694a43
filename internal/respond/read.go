package respond

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// MaxBody bounds a response that is read.
const MaxBody = 64 << 20

// Refused is the error of Read for another status than 200.
type Refused struct {
	Code          int
	Service, Text string
}

func (e *Refused) Error() string {
	if e.Code == http.StatusNotFound {
		return fmt.Sprintf("the service at %s explains nothing (status 404): its address must be the admin address of outboard serve", e.Service)
	}
	return fmt.Sprintf("the service responded with %d %s: %s", e.Code, http.StatusText(e.Code), e.Text)
}

// Read sends the request, and decodes the JSON of the response.
func Read(client *http.Client, req *http.Request, into any) error {
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("calling the service: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
		return &Refused{res.StatusCode, req.URL.Scheme + "://" + req.URL.Host, strings.TrimSpace(string(text))}
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, MaxBody)).Decode(into); err != nil {
		return fmt.Errorf("reading the response of the service: %w", err)
	}
	return nil
}
