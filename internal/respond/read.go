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
	Code         int
	Status, Text string
}

func (e *Refused) Error() string { return "the service responded with " + e.Status + ": " + e.Text }

// Read sends the request, and decodes the JSON of the response.
func Read(client *http.Client, req *http.Request, into any) error {
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("calling the service: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
		return &Refused{res.StatusCode, res.Status, strings.TrimSpace(string(text))}
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, MaxBody)).Decode(into); err != nil {
		return fmt.Errorf("reading the response of the service: %w", err)
	}
	return nil
}
