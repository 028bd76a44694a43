package nightly

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

// front is a proxy between Outboard and Prometheus, with faults on demand.
type front struct {
	*httptest.Server
	healthy http.Handler
	fault   atomic.Pointer[http.HandlerFunc] // nil: none
}

func newFront(t testing.TB, healthy http.Handler) *front {
	f := &front{healthy: healthy}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fault := f.fault.Load(); fault != nil {
			(*fault)(w, r)
			return
		}
		f.healthy.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

// fault is a possible fault of a Prometheus server.
type fault struct {
	name   string
	answer http.HandlerFunc
	says   string // Outboard's message about it
}

var faults = []fault{{
	name: "down",
	answer: func(w http.ResponseWriter, r *http.Request) {
		panic(http.ErrAbortHandler) // the connection ends without a response
	},
	says: "EOF",
}, {
	name: "hanging",
	answer: func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm() // otherwise the server does not notice that the client disconnects
		select {
		case <-r.Context().Done():
		case <-time.After(30 * time.Second):
		}
	},
	says: "no response within 1s",
}, {
	name: "million-series",
	answer: func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[`)
		for i := range 1_000_000 {
			if _, err := fmt.Fprintf(w, `{"metric":{"node":"node-%d","job":"node-exporter"},"value":[1700000000,"0.5"]},`, i); err != nil {
				return
			}
		}
		io.WriteString(w, `{"metric":{},"value":[1,"1"]}]}}`)
	},
	says: "more than 20000 values",
}, {
	name:   "garbage",
	answer: func(w http.ResponseWriter, r *http.Request) { w.Write(bytes.Repeat([]byte{0, 0xff, '{', '"'}, 1<<16)) },
	says:   "the response is invalid",
}}

const faultySignal = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
signals:
- name: load
  interval: 1s
  timeout: 1s
  maxAge: 3s
  prometheus: {address: %q, query: load, nodeNameLabel: node}
profiles:
- path: /
  policies: [{type: Utilization, config: {cpu: {signal: load, unit: Fraction}, metricDelay: 0s}}]
- path: /strict
  policies: [{type: Utilization, config: {cpu: {signal: load, unit: Fraction}, metricDelay: 0s, whenStale: Reject}}]
`

// During any fault of Prometheus, the rules determine the responses to calls, and stale values are
// shown as stale; after the fault, everything is normal again.
func TestSignalFaults(t *testing.T) {
	th := theater.Open(t)
	load := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "load"}, []string{"node"})
	load.WithLabelValues("a").Set(0.2)
	load.WithLabelValues("b").Set(0.7)
	registry := prometheus.NewRegistry()
	registry.MustRegister(load)
	exporter := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(exporter.Close)
	server, err := controlplane.StartPrometheus(th.Ctx, controlplane.PrometheusOptions{Config: fmt.Sprintf(
		"global: {scrape_interval: 200ms, scrape_timeout: 200ms}\nscrape_configs: [{job_name: nodes, static_configs: [{targets: [%q]}]}]\n", exporter.Listener.Addr())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	f := newFront(t, httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: server.Address}))
	th.Nodes(controlplane.NodeSpec{Name: "a"}, controlplane.NodeSpec{Name: "b"})
	o := th.Outboard(fmt.Sprintf(faultySignal, f.URL))
	pod := th.Create(controlplane.PodSpec{Name: "asked", SchedulerName: "nobody"})

	caller := newCaller(o, pod, "a", "b")
	stop := caller.run(t)
	defer stop()
	known := func() bool {
		return th.Metric(o, `outboard_signal_stale_values{signal="load"} `) == "0" && caller.scores(t, "")["a"] > caller.scores(t, "")["b"]
	}
	th.Eventually("a is better than b", known)
	for _, fault := range faults {
		f.fault.Store(&fault.answer)
		th.Eventually(fault.name+" makes all values stale", func() bool {
			return th.Metric(o, `outboard_signal_stale_values{signal="load"} `) == "2"
		})
		// A prioritize call may return the scores of a filter call up to a second before.
		th.Eventually(fault.name+" makes the scores of a and b equal", func() bool {
			s := caller.scores(t, "")
			return s["a"] == s["b"]
		})
		if why := caller.filter(t, "/strict"); why["a"] != "node(s) have no current measurement of their utilization" {
			t.Errorf("%s: a fits, or does not because of %q", fault.name, why["a"])
		}
		if why := caller.filter(t, ""); len(why) > 0 {
			t.Errorf("%s: %v do not fit", fault.name, why)
		}
		// The error sometimes is a timeout.
		th.Eventually(fault.name+" is shown", func() bool {
			signals := th.Explain(o, "asked").Signals
			return len(signals) == 1 && signals[0].Stale == 2 && strings.Contains(signals[0].Error, fault.says)
		})
		th.Eventually(fault.name+" is on /readyz", func() bool {
			ready := th.Get(o.Admin + "/readyz")
			return strings.Contains(ready, "signal load: 2 of 2 values are stale; ") && strings.Contains(ready, fault.says)
		})
		f.fault.Store(nil)
		th.Eventually("a is better than b after "+fault.name, known)
	}
	stop()
	if caller.calls.Load() == 0 {
		t.Error("there were no calls meanwhile")
	}
	select {
	case <-o.Done():
		t.Error("outboard has ended")
	default:
	}
}

// caller calls as kube-scheduler does, and checks the properties of every response.
type caller struct {
	url   string
	body  []byte
	nodes []string
	calls atomic.Int64
}

func newCaller(o *stage.Outboard, pod *corev1.Pod, nodes ...string) *caller {
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod, NodeNames: &nodes})
	if err != nil {
		panic(err) // plain data
	}
	return &caller{url: o.URL, body: body, nodes: nodes}
}

// run calls repeatedly, until stop is called.
func (c *caller) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			c.filter(t, "")
			c.filter(t, "/strict")
			c.scores(t, "")
			c.calls.Add(3)
			time.Sleep(time.Millisecond)
		}
	})
	return func() { cancel(); running.Wait() }
}

func (c *caller) ask(t testing.TB, path string, into any) {
	res, err := http.Post(c.url+path, "application/json", bytes.NewReader(c.body))
	if err != nil {
		t.Error(err)
		return
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(into); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("%s: %s, %v", path, res.Status, err)
	}
}

// filter returns why nodes do not fit.
func (c *caller) filter(t testing.TB, profile string) map[string]string {
	var answer extenderv1.ExtenderFilterResult
	c.ask(t, profile+"/filter", &answer)
	why := map[string]string{}
	for _, failed := range []extenderv1.FailedNodesMap{answer.FailedNodes, answer.FailedAndUnresolvableNodes} {
		for node, reason := range failed {
			why[node] = reason
		}
	}
	if answer.Error != "" || answer.NodeNames == nil || len(*answer.NodeNames)+len(why) != len(c.nodes) {
		t.Errorf("filter returns %+v", answer)
	}
	return why
}

func (c *caller) scores(t testing.TB, profile string) map[string]int64 {
	var answer extenderv1.HostPriorityList
	c.ask(t, profile+"/prioritize", &answer)
	scores := map[string]int64{}
	for _, node := range c.nodes {
		scores[node] = 0 // the lowest, which the response leaves out
	}
	for _, host := range answer {
		if scores[host.Host] = host.Score; host.Score < 0 || host.Score > extenderv1.MaxExtenderPriority {
			t.Errorf("%s has the score %d", host.Host, host.Score)
		}
	}
	if len(scores) != len(c.nodes) {
		t.Errorf("prioritize returns %v", answer)
	}
	return scores
}
