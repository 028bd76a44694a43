package extender_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/policies/imagelocality"
	"outboard.dev/outboard/policies/resourceclaims"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// twoGPUs are two nodes with a GPU each. A claim has half of that of b, so that BinPack prefers b.
const twoGPUs = `
- kind: DeviceClass
  metadata: {name: gpu}
  spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
- kind: ResourceSlice
  metadata: {name: a}
  spec:
    driver: gpu.example.com
    nodeName: a
    pool: {name: a, generation: 1, resourceSliceCount: 1}
    devices: &gpus
    - {name: gpu-0, allowMultipleAllocations: true, capacity: {memory: {value: 40Gi}}}
- kind: ResourceSlice
  metadata: {name: b}
  spec:
    driver: gpu.example.com
    nodeName: b
    pool: {name: b, generation: 1, resourceSliceCount: 1}
    devices: *gpus
- kind: ResourceClaim
  metadata: {name: held}
  spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, capacity: {requests: {memory: 20Gi}}}}]}}
  status: {allocation: {devices: {results: [{request: r, driver: gpu.example.com, pool: b, device: gpu-0, shareID: s1, consumedCapacity: {memory: 20Gi}}]}}}
`

const newClaim = `
- kind: ResourceClaim
  metadata: {name: new}
  spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, capacity: {requests: {memory: 10Gi}}}}]}}
`

// heldWatch is a cluster whose watch shows the claim only after somebody waits for another view, if at all.
type heldWatch struct {
	fakeCluster
	comes  bool
	awaits int
}

func (c *heldWatch) Superseded(*snapshot.View) <-chan struct{} {
	c.awaits++
	if !c.comes {
		return nil
	}
	policytest.Devices(newClaim)(&c.builder)
	c.view = c.builder.View()
	done := make(chan struct{})
	close(done)
	return done
}

// kube-scheduler may see a claim before Outboard does. Its scores count nevertheless, if it comes soon.
func TestClaimsAreAwaited(t *testing.T) {
	name := "new"
	pod := somePod()
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
	for what, tc := range map[string]struct {
		policy  policy.Type
		verb    decision.Verb
		comes   bool
		awaits  int
		best    string // "": both nodes are equally good
		unknown []string
	}{
		"prioritize": {resourceclaims.Type(), decision.Prioritize, true, 1, "b", nil},
		"filter":     {resourceclaims.Type(), decision.Filter, true, 1, "b", nil},
		"never":      {resourceclaims.Type(), decision.Prioritize, false, 1, "", []string{"new"}},
		"not read":   {imagelocality.Type(), decision.Prioritize, false, 0, "", nil},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := &heldWatch{comes: tc.comes}
				for _, n := range policytest.Nodes("[{metadata: {name: a}}, {metadata: {name: b}}]") {
					cluster.builder.SetNode(n)
				}
				policytest.Devices(twoGPUs)(&cluster.builder)
				cluster.view = cluster.builder.View()
				e, err := engine.New(engine.Options{Shortlist: 1, Policies: []engine.WeightedPolicy{{Name: "P", Policy: policytest.Build(t, tc.policy, ""), Weight: 1}}})
				if err != nil {
					t.Fatal(err)
				}
				log := decision.NewLog(8)
				handler := extender.New(extender.Options{
					Profile: "/", Cluster: cluster, Engine: e, Log: log, Metrics: callmetrics.New(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
				})
				call := func() {
					args := extenderv1.ExtenderArgs{Pod: pod, NodeNames: names("a", "b")}
					handler.Verb(tc.verb).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", bytes.NewReader([]byte(encode(t, args)))))
				}
				call()
				r := log.Latest(1, func(*decision.Record) bool { return true })[0]
				best := ""
				if r.Ties == 1 {
					best = r.Top[0].Node
				}
				if best != tc.best || !slices.Equal(r.UnknownClaims, tc.unknown) || r.Error != "" {
					t.Errorf("the best node is %q, unknown claims %q, error %q; want %q, %q", best, r.UnknownClaims, r.Error, tc.best, tc.unknown)
				}
				if call(); cluster.awaits != tc.awaits {
					t.Errorf("two calls waited %d times, want %d", cluster.awaits, tc.awaits)
				}
			})
		})
	}
}
