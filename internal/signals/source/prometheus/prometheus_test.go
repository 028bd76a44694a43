package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"outboard.dev/outboard/internal/signals/source/prometheus"
	"outboard.dev/outboard/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var limits = signal.Limits{Values: 4, Bytes: 1 << 20}

// standIn is a server that responds to queries like Prometheus, and a Source that queries it.
func standIn(t testing.TB, c prometheus.Config, answer http.HandlerFunc) *prometheus.Source {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c.Address = server.URL + "/prom/"
	if c.Query == "" {
		c.Query = "up"
	}
	s, err := prometheus.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func saying(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func vector(series ...string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(series, ",") + `]}}`
}

func show(samples []signal.Sample) string {
	var parts []string
	for _, s := range samples {
		parts = append(parts, fmt.Sprintf("%s=%v@%d", s.Key, s.Number, s.At.UnixMilli()))
	}
	return strings.Join(parts, " ")
}

func TestRead(t *testing.T) {
	byNode, byKey := prometheus.Config{NodeNameLabel: "instance"}, prometheus.Config{KeyLabel: "zone"}
	for name, tc := range map[string]struct {
		config     prometheus.Config
		body, want string
	}{
		"nodes": {byNode, vector(
			`{"metric":{"instance":"n1:9100","job":"x"},"value":[1700000000.125,"0.5"]}`,
			`{"metric":{"instance":"n2"},"value":[1700000000,"1e3"]}`,
			`{"metric":{"instance":"[fe80::1]:9100"},"value":[1700000000,"1"]}`,
			`{"metric":{"instance":"fe80::2"},"value":[1700000000,"1"]}`,
		), "n1=0.5@1700000000125 n2=1000@1700000000000 fe80::1=1@1700000000000 fe80::2=1@1700000000000"},
		"no port":       {byNode, vector(`{"metric":{"instance":"n1:http"},"value":[1,"1"]}`), "n1:http=1@1000"},
		"keys":          {byKey, vector(`{"metric":{"zone":"a:80"},"value":[1,"1"]}`), "a:80=1@1000"},
		"missing label": {byKey, vector(`{"metric":{},"value":[1,"1"]}`, `{"metric":{"zone":"b"},"value":[1,"2"]}`), "b=2@1000"},
		"not finite":    {byKey, vector(`{"metric":{"zone":"a"},"value":[1,"NaN"]}`, `{"metric":{"zone":"b"},"value":[1,"+Inf"]}`, `{"metric":{"zone":"c"},"value":[1,"-Inf"]}`), "a=NaN@1000 b=+Inf@1000 c=-Inf@1000"},
		"empty":         {byNode, vector(), ""},
		"scalar":        {prometheus.Config{}, `{"status":"success","data":{"resultType":"scalar","result":[2,"7"]}}`, "=7@2000"},
		"one number":    {prometheus.Config{}, vector(`{"metric":{"a":"b"},"value":[2,"7"]}`), "=7@2000"},
		"warnings":      {byKey, strings.Replace(vector(`{"metric":{"zone":"a"},"value":[1,"1"]}`), `"data"`, `"warnings":["a store is down"],"infos":["rate of a gauge"],"data"`, 1), "a=1@1000"},
		"metric label":  {prometheus.Config{KeyLabel: "metric"}, vector(`{"metric":{"metric":"a"},"value":[1,"1"]}`, `{"metric":{"metric":"b"},"value":[1,"1"]}`, `{"metric":{"metric":"c"},"value":[1,"1"]}`), "a=1@1000 b=1@1000 c=1@1000"},
	} {
		t.Run(name, func(t *testing.T) {
			samples, err := standIn(t, tc.config, saying(200, tc.body)).Read(t.Context(), limits)
			if err != nil {
				t.Fatal(err)
			}
			if got := show(samples); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	byNode := prometheus.Config{NodeNameLabel: "instance"}
	one := `{"metric":{"instance":"n1"},"value":[1,"1"]}`
	for name, tc := range map[string]struct {
		config prometheus.Config
		status int
		body   string
		want   string
	}{
		"down":              {byNode, 503, "Service Unavailable\r\nretry\x00 later", "/prom/: 503 Service Unavailable: Service Unavailable retry later"},
		"long error":        {byNode, 500, strings.Repeat("é", 500), "500 Internal Server Error: " + strings.Repeat("é", 100) + "…"},
		"not found":         {byNode, 404, "", "/prom/: 404 Not Found"},
		"forbidden":         {byNode, 403, "who are you?", "403 Forbidden: who are you?"},
		"wrong query":       {byNode, 400, `{"status":"error","errorType":"bad_data","error":"1:3: parse error: unexpected end of input"}`, "bad_data: 1:3: parse error: unexpected end of input"},
		"cannot evaluate":   {byNode, 422, `{"status":"error","errorType":"execution","error":"found duplicate series"}`, "execution: found duplicate series"},
		"422 from a proxy":  {byNode, 422, `<html>no</html>`, "422 Unprocessable Entity: <html>no</html>"},
		"takes too long":    {byNode, 503, `{"status":"error","errorType":"timeout","error":"query timed out"}`, "timeout: query timed out"},
		"success with 500":  {byNode, 500, vector(one), "500 Internal Server Error"},
		"no result":         {byNode, 200, `{"status":"success","data":{"resultType":"vector"}}`, "the response is invalid"},
		"error with 200":    {byNode, 200, `{"status":"error","errorType":"execution","error":"no"}`, "execution: no"},
		"web page":          {byNode, 200, `<html>Log in</html>`, "the response is invalid: invalid character '<' looking for beginning of value: <html>Log in</html>"},
		"nothing":           {byNode, 200, ``, "the response is invalid"},
		"other JSON":        {byNode, 200, `{"hello":"world"}`, "the response has no result"},
		"half an answer":    {byNode, 200, vector(one)[:50], "unexpected end of JSON input"},
		"null series":       {byNode, 200, vector("null"), "the response has an empty series"},
		"matrix":            {byNode, 200, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"1"]]}]}}`, "the query returns a matrix: it must return a vector or a scalar"},
		"string":            {byNode, 200, `{"status":"success","data":{"resultType":"string","result":[1,"x"]}}`, "the query returns a string: it must return a vector or a scalar"},
		"strange type":      {byNode, 200, `{"status":"success","data":{"resultType":"a\r\n` + strings.Repeat("x", 2000) + `","result":[]}}`, "the query returns a"},
		"histogram":         {byNode, 200, vector(`{"metric":{"instance":"n1"},"histogram":[1,{"count":"1","sum":"1","buckets":[[0,"1","2","1"]]}]}`), "the query returns histograms"},
		"scalar for nodes":  {byNode, 200, `{"status":"success","data":{"resultType":"scalar","result":[2,"7"]}}`, `the query returns a scalar, which has no label "instance"`},
		"several for one":   {prometheus.Config{}, 200, vector(one, one), "the query returns 2 numbers: without nodeNameLabel and keyLabel"},
		"not a number":      {byNode, 200, vector(`{"metric":{"instance":"n1"},"value":[1,"many"]}`), "the response is invalid"},
		"value in no pair":  {byNode, 200, vector(`{"metric":{"instance":"n1"},"value":{}}`), "the response is invalid"},
		"more than allowed": {byNode, 200, vector(one, one, one, one, one), signal.ErrTooMany.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			samples, err := standIn(t, tc.config, saying(tc.status, tc.body)).Read(t.Context(), limits)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "prometheus http://127.0.0.1:") {
				t.Fatalf("got %s, error %v; want one with %q", show(samples), err, tc.want)
			}
			if strings.ContainsAny(err.Error(), "\x00\r\n") || len(err.Error()) > 600 {
				t.Errorf("not one short line: %q", err)
			}
		})
	}
}

// TestRequest: the request limits the number of series and the time.
func TestRequest(t *testing.T) {
	got := make(chan http.Request, 10)
	s := standIn(t, prometheus.Config{Query: `sum by (instance) (a{b="c"})`, NodeNameLabel: "instance"}, func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		got <- *r
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed) // like a proxy that permits only GET
			return
		}
		io.WriteString(w, vector())
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := s.Read(ctx, limits); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		r := <-got
		timeout, err := model.ParseDuration(r.Form.Get("timeout")) // as Prometheus does
		if r.Method != method || r.URL.Path != "/prom/api/v1/query" || r.Form.Get("query") != `sum by (instance) (a{b="c"})` ||
			r.Form.Get("limit") != "5" || r.Form.Has("time") || err != nil || time.Duration(timeout) > time.Minute {
			t.Errorf("%s %s %v", r.Method, r.URL.Path, r.Form)
		}
	}
}

// TestHang: a request to a server that never responds, or never ends its response, ends with the
// context.
func TestHang(t *testing.T) {
	for _, head := range []string{"", `{"status":"success","data":{"resultType":"vector","result":[`} {
		ctx, cancel := context.WithCancel(t.Context())
		s := standIn(t, prometheus.Config{}, func(w http.ResponseWriter, r *http.Request) {
			r.ParseForm() // otherwise the server does not notice that the client disconnects
			io.WriteString(w, head)
			if head != "" {
				w.(http.Flusher).Flush()
			}
			cancel()
			<-r.Context().Done()
		})
		if _, err := s.Read(ctx, limits); !errors.Is(err, context.Canceled) {
			t.Errorf("after %q: %v", head, err)
		}
	}
}

func TestDown(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	s, err := prometheus.New(prometheus.Config{Address: server.URL, Query: "up"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(t.Context(), limits); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a server that is down: %v", err)
	}
}

// TestLimits: a Source keeps no more than the limits, whatever the response has.
func TestLimits(t *testing.T) {
	const head, tail = `{"status":"success","data":{"resultType":"vector","result":[`, `{}]}}`
	for name, tc := range map[string]struct {
		body string
		want error
	}{
		"empty series": {head + strings.Repeat(`{},`, 1<<20) + tail, signal.ErrTooMany},
		"warnings":     {`{"warnings":[` + strings.Repeat(`"",`, 1<<20) + `""]}`, signal.ErrTooMany},
		"too long":     {head + strings.Repeat(`{"metric":{},"value":[1,"1"]},`, 1<<20) + tail, signal.ErrTooLong},
	} {
		s := standIn(t, prometheus.Config{NodeNameLabel: "instance"}, saying(200, tc.body))
		if _, err := s.Read(t.Context(), signal.Limits{Values: 1000, Bytes: signal.MaxBytes}); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(vector(`{"metric":{"instance":"n1:9100"},"value":[1700000000.125,"0.5"]}`))
	f.Add(`{"status":"success","data":{"resultType":"scalar","result":[2,"7"]}}`)
	f.Add(`{"status":"error","errorType":"execution","error":"no"}`)
	f.Add(`<html>`)
	var body atomic.Pointer[string]
	s := standIn(f, prometheus.Config{NodeNameLabel: "instance"}, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, *body.Load())
	})
	f.Fuzz(func(t *testing.T, answer string) {
		body.Store(&answer)
		samples, err := s.Read(t.Context(), limits)
		if err != nil && len(samples) > 0 || len(samples) > limits.Values {
			t.Errorf("%d samples, error %v", len(samples), err)
		}
		for _, s := range samples {
			if s.Key == "" {
				t.Errorf("sample %+v", s)
			}
		}
	})
}
