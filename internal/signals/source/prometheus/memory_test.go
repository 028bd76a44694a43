package prometheus

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/signals/httpclient"
	"outboard.dev/outboard/signal"
)

// reader is an io.Reader.
type reader func([]byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }

// TestMemory: the size of the response does not determine what the Source keeps, whatever the
// response has.
func TestMemory(t *testing.T) {
	const maxBytes = 4 << 20
	const head, tail = `{"status":"success","data":{"resultType":"vector","result":[`, `{}]}}`
	for name, tc := range map[string]struct {
		head, part, tail string // part is repeated
		want             string // "": no error, and no samples
	}{
		"series":        {head, `{"metric":{},"value":[1,"1"]},`, tail, signal.ErrTooMany.Error()},
		"empty series":  {head, `{},`, tail, signal.ErrTooMany.Error()},
		"space":         {head, `{"metric": {"":""}},`, tail, signal.ErrTooMany.Error()},
		"null":          {head, `null,`, tail, signal.ErrTooMany.Error()},
		"numbers":       {head, `1,`, tail, "the result is not a list of series"},
		"labels":        {head + `{"metric":{`, `"a":"",`, `"b":""},"value":[1,"1"]}]}}`, ""},
		"a long label":  {head + `{"metric":{"instance":"`, `x`, `"},"value":[1,"1"]}]}}`, "a text or number is longer than 65536 bytes"},
		"warnings":      {`{"status":"success","warnings":[`, `"down",`, `""],"data":{"resultType":"vector","result":[]}}`, ""},
		"nested":        {head, `[`, ``, "nested deeper than 64"},
		"too long":      {`{"other":[`, `"xxxxxx",`, `1]}         `, signal.ErrTooLong.Error()},
		"range vectors": {`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[`, `[1,"1"],`, `[1,"1"]]}]}}`, "the query returns a matrix"},
	} {
		t.Run(name, func(t *testing.T) {
			parts := (maxBytes - len(tc.head) - len(tc.tail)) / len(tc.part)
			if tc.want == signal.ErrTooLong.Error() {
				parts += 2
			}
			body := tc.head + strings.Repeat(tc.part, parts) + tc.tail
			var kept uint64
			before := live()
			limits := signal.Limits{Values: 1000, Bytes: maxBytes}
			// The Source asks for more when it has processed what it read before.
			res := &httpclient.Response{Response: &http.Response{StatusCode: http.StatusOK}, Body: limits.Reader(io.MultiReader(
				strings.NewReader(body[:maxBytes*3/4]),
				reader(func([]byte) (int, error) {
					now := live()
					kept = now - min(now, before)
					return 0, io.EOF
				}),
				strings.NewReader(body[maxBytes*3/4:]),
			))}
			s := &Source{config: Config{NodeNameLabel: "instance"}}
			var samples []signal.Sample
			said, err := decode(t.Context(), res, s.config.NodeNameLabel, limits.Values)
			if err == nil {
				samples, err = s.samples(said, res)
			}
			if len(samples) > 0 || tc.want != "" != (err != nil) || !strings.Contains(fmt.Sprint(err), tc.want) {
				t.Fatalf("%d samples, error %v, want %q", len(samples), err, tc.want)
			}
			if kept > maxBytes/8 {
				t.Errorf("after 3 of 4 MiB the process keeps %d bytes more", kept)
			}
		})
	}
}

// live returns the bytes of the heap that are not garbage.
func live() uint64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
